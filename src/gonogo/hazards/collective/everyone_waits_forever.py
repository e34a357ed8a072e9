from gonogo.evidence.rehearsal.failures import frame_spans, is_stdlib_frame
from gonogo.evidence.rehearsal.record import RankRecord
from gonogo.finding.frame import Frame
from gonogo.finding.ranks import ranks_text
from gonogo.finding.waits import WaitingSide, WaitKind
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, Text, translated


class EveryoneWaitsForever(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Ranks of which each thread waits, and those that wait for these ranks in a collective."""
        stuck = [rank for rank in record.ranks if rank.outcome == "stuck"]
        sides = [(rank, wait) for rank in stuck for wait in rank.waits]
        if not sides:
            return
        merged: dict[tuple[object, ...], tuple[WaitingSide, list[int]]] = {}
        for rank, wait in sides:
            merged.setdefault((wait.who, wait.kind, wait.frames, wait.whom), (wait, []))[1].append(rank.rank)
        parties = sorted(merged.values(), key=lambda side: (side[0].kind == "collective", side[0].who == "driver"))
        places = _places([wait for wait, _ in parties])
        told = [_sentence(wait, ranks, place) for (wait, ranks), place in zip(parties, places, strict=True)]
        polls = any(rank.stuck == "polling" for rank in stuck)
        end = translated("Nobody went on for half a minute.") if polls else translated("Nobody goes on.")
        cause = Text(
            f"{'; '.join(text.en for text in told)}. {end.en}", f"{'；'.join(text.zh for text in told)}。{end.zh}"
        )
        yield self.finding(
            cause,
            certainty=Certainty.CERTAIN if all(map(_is_certain, stuck)) else Certainty.LIKELY,
            spans=frame_spans(
                *((place, _label(wait, ranks)) for (wait, ranks), place in zip(parties, places, strict=True))
            ),
            ranks=tuple(rank.rank for rank in stuck),
        )


def _places(waits: list[WaitingSide]) -> list[Frame | None]:
    """For each wait the program's own line, or else a library's. Where several wait in one line (of a function that
    looks again and again), the lines from which they call it."""
    found: list[Frame | None] = []
    for wait in waits:
        own = [frame for frame in wait.frames if frame.owner == "user"]
        own = own or [one for one in wait.frames if one.owner == "library" and not is_stdlib_frame(one)]
        others = [other for other in waits if other is not wait and other.kind == wait.kind == "poll"]
        while len(own) > 1 and any(own[-1] in other.frames for other in others):
            own.pop()
        found.append(own[-1] if own else None)
    return found


_DECIDES_NO_WAIT = ("finite", "flash_attention", "cudnn_attention", "cluster")


def _is_certain(rank: RankRecord) -> bool:
    """Whether nothing that gonogo made up or left out can have led the rank there."""
    if all(wait.kind == "collective" for wait in rank.waits):
        return True
    assumed = any(assumption.kind not in _DECIDES_NO_WAIT for assumption in rank.assumptions)
    made_up = assumed or rank.advanced_loops or rank.left_out or rank.missed
    return rank.stuck == "forever" and not made_up


_WAITS: dict[WaitKind, Text] = {
    "lock": translated("waits for a lock"),
    "queue-get": translated("waits for an item of a queue"),
    "queue-put": translated("waits for a place in a queue that is full"),
    "thread": translated("waits for a thread to end"),
    "process": translated("waits for a process to end"),
    "event": translated("waits for an event or a condition"),
    "future": translated("waits for a result"),
    "actor": translated("waits for the result of {what}"),
    "coroutine": translated("waits in a coroutine"),
    "server": translated("waits for a server that is paused"),
    "collective": translated("waits in {what}"),
    "poll": translated("looks again and again"),
    "other": translated("waits"),
}
_WHOM: dict[WaitKind, Text] = {
    "lock": translated("held by {whom}"),
    "thread": translated("namely {whom}"),
    "process": translated("namely {whom}"),
    "actor": translated("busy with {whom}"),
}


def _sentence(wait: WaitingSide, ranks: list[int], place: Frame | None) -> Text:
    """``rank 0, MainThread, at train.py:34, waits for a lock (held by Thread-1 (roll_out))``."""
    where = f"{place.path.rpartition('/')[2]}:{place.line}" if place is not None else "?"
    does = _WAITS[wait.kind].format(what=wait.what)
    known = []
    if wait.whom:
        known.append(_WHOM.get(wait.kind, translated("known to {whom}")).format(whom=", ".join(wait.whom)))
    if wait.ended:
        known.append(translated("known to {whom}, which has ended").format(whom=", ".join(wait.ended)))
    if not wait.whom and wait.kind in ("queue-get", "queue-put", "event"):
        known.append(translated("no other thread that still runs knows it"))
    more = (
        Text(f" ({'; '.join(one.en for one in known)})", f"（{'；'.join(one.zh for one in known)}）")
        if known
        else Text("", "")
    )
    who = ranks_text(ranks)
    named = Text(f"{who.en}, {wait.who}", f"{who.zh} 的 {wait.who}") if wait.who else who
    return Text(f"{named.en}, at {where}, {does.en}{more.en}", f"{named.zh} 在 {where} {does.zh}{more.zh}")


def _label(wait: WaitingSide, ranks: list[int]) -> Text:
    who = ranks_text(ranks)
    does = _WAITS[wait.kind].format(what=wait.what)
    named = f", {wait.who}" if wait.who else ""
    return Text(f"{who.en}{named}: {does.en}", f"{who.zh}{named}：{does.zh}")
