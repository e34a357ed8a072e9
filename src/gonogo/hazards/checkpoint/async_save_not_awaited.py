import os

from gonogo.evidence.rehearsal.lives import BackgroundSave
from gonogo.hazards.rule import Findings, Hazard, RehearsalRecord, Severity


class AsyncSaveNotAwaited(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A save in the background that the program's end, or its next save, doesn't wait for; the worst of them."""
        lives = [rank for one in (record, record.first_life) if one is not None for rank in one.ranks]
        every = [(rank.rank, save) for rank in lives if rank.life is not None for save in rank.life.background]
        worst = max((save for _, save in every), key=_badness, default=None)
        if worst is None or not _badness(worst)[0]:
            return
        cause = self.texts["lost_at_end"]
        if worst.ended == "exit":
            cause = self.texts["fails_at_end"]
        elif worst.ended == "without-group":
            cause = self.texts["without_group"]
        elif worst.ended == "overlapped":
            cause = self.texts["overlaps"] if record.world_size > 1 else self.texts["overlaps_alone"]
        path, _, line = worst.place.rpartition(":")
        # A save that was begun long before the end is complete by then.
        at_end = worst.ended != "overlapped" and not worst.steps_meanwhile
        yield self.finding(
            cause.format(
                step=worst.step,
                steps=worst.steps_meanwhile,
                error=worst.error,
                place=f"{os.path.basename(path)}:{line}",
            ),
            ranks=tuple(sorted({rank for rank, save in every if save.place == worst.place})),
            severity=Severity.ERROR if at_end else Severity.WARNING,
            cure=self.page.cures,
            confirm=self.texts["confirm"],
        )


def _badness(save: BackgroundSave) -> tuple[int, int]:
    if save.ended in ("lost", "without-group") or (save.ended == "exit" and save.error):
        return 2, -save.steps_meanwhile
    return int(save.ended == "overlapped"), 0
