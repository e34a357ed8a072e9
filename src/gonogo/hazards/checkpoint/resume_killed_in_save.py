import os
from collections.abc import Sequence

from gonogo.evidence.rehearsal.life_table import life_report
from gonogo.finding.lives.life_report import Interruption
from gonogo.hazards.rule import Findings, Hazard, RehearsalRecord, Text, translated


class ResumeKilledInSave(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A kill between two writes of a save, after which the resumed run has a part of the state or always fails."""
        life = life_report(record)
        every = (*life.interruptions, *life.later_interruptions) if life is not None else ()
        half = [one for one in every if one.kind == "half"]
        mixed = [one for one in every if one.kind == "mixed"]
        raises = [one for one in every if one.kind == "raises"]
        gone = [one for one in life.later_interruptions if one.kind == "anew"] if life is not None else []
        ranks = tuple(rank.rank for rank in record.ranks)
        if half:
            yield self.finding(
                self.texts["half_checkpoint_cause"].format(
                    window=_describe_moments(half), lost=_interruption_reason(half[0])
                ),
                ranks=ranks,
            )
        if mixed:
            yield self.finding(
                self.texts["half_checkpoint_window_cause"].format(
                    window=_describe_moments(mixed), states=_interruption_reason(mixed[0])
                ),
                ranks=ranks,
            )
        if gone:
            yield self.finding(self.texts["none_left_window_cause"].format(window=_describe_moments(gone)), ranks=ranks)
        if raises:
            yield self.finding(
                self.texts["resume_fails_cause"].format(
                    window=_describe_moments(raises), error=_interruption_reason(raises[0])
                ),
                ranks=ranks,
            )


def _interruption_reason(moment: Interruption) -> Text:
    return Text(moment.why, moment.why_zh or moment.why)


def _describe_moments(moments: Sequence[Interruption]) -> Text:
    """The first and last of these moments between two writes; or the file that is only half written."""
    if moments[0].removed and moments[0].rank is None:
        gone = os.path.basename(moments[0].after)
        return translated("after {file} is removed").format(file=gone)
    between = [one for one in moments if not one.torn and one.rank is None]
    alone = [one for one in moments if one.rank is not None]
    if not between and alone:
        file = os.path.basename(alone[0].before)
        if alone[0].before_removed:
            return translated("on rank {rank} before it removes {file}").format(rank=alone[0].rank, file=file)
        return translated("on rank {rank} before it writes {file}").format(rank=alone[0].rank, file=file)
    if not between:
        files = dict.fromkeys(os.path.basename(one.after) for one in moments)
        named = ", ".join([*files][:3]) + (", …" if len(files) > 3 else "")
        return translated("while {file} is written").format(file=named)
    first, last = os.path.basename(between[0].after), os.path.basename(between[-1].before)
    return translated("between {first} and {last}").format(first=first, last=last)
