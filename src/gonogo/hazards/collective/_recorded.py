"""Describes in words what Flight Recorder dumps and py-spy stacks show about a run that hangs."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gonogo.evidence.dumps.collective_mismatch import CollectiveMismatch
from gonogo.evidence.dumps.flight_recorder import RecordedCall
from gonogo.evidence.guarded.whereabouts import activity_in_stack, innermost_user_frame
from gonogo.finding.frame import Frame
from gonogo.finding.ranks import capitalize_text, ranks_text
from gonogo.hazards.rule import Span, Text, translated

CHECK_MISSING_RANK_LOGS = translated(
    "Read the logs of the ranks that did not arrive: one that died earlier also makes the others wait"
)


def describe_mismatch(mismatch: CollectiveMismatch) -> Text:
    """A sentence: which ranks wait in which collective call, and what the other ranks called instead."""
    waiting = translated("{ranks} {called} {call} as call {number} of group {group}{at};").format(
        ranks=capitalize_text(ranks_text(mismatch.waiting)),
        called="made" if mismatch.kind != "missing" else "waits in" if len(mismatch.waiting) == 1 else "wait in",
        call=_describe_call(mismatch.call),
        number=mismatch.call.sequence,
        group=mismatch.call.group or "0",
        at=describe_location(mismatch.call.frames),
    )
    others = ranks_text(mismatch.others)
    if mismatch.kind != "missing" and mismatch.others_call is not None:
        rest = translated("{others} made {call} instead{at}.").format(
            others=others, call=_describe_call(mismatch.others_call), at=describe_location(mismatch.others_call.frames)
        )
    elif mismatch.others_call is not None:
        rest = translated("{others} {have} not reached it: the last call there was {number}, {call}{at}.").format(
            others=others,
            have="has" if len(mismatch.others) == 1 else "have",
            number=mismatch.others_call.sequence,
            call=_describe_call(mismatch.others_call),
            at=describe_location(mismatch.others_call.frames),
        )
    elif not mismatch.dumped:
        rest = translated("there is no dump for {others}.").format(others=others)
    else:
        rest = translated("the dump of {others} has no call of this group.").format(others=others)
    blocked = _describe_blocking_call(mismatch)
    return Text(f"{waiting.en} {rest.en}{blocked.en}", f"{waiting.zh}{rest.zh}{blocked.zh}")


def _describe_blocking_call(mismatch: CollectiveMismatch) -> Text:
    """A sentence about the call of another group that blocks the first of the other ranks; empty if none does."""
    call = mismatch.blocked_in
    if call is None or call.group == mismatch.call.group:
        return Text("", "")
    return translated(" {rank} waits in {call} instead, call {number} of group {group}{at}.").format(
        rank=capitalize_text(ranks_text(mismatch.others[:1])),
        call=_describe_call(call),
        number=call.sequence,
        group=call.group or "0",
        at=describe_location(call.frames),
    )


def describe_location(frames: Sequence[Frame]) -> Text:
    """The location in the user's code, with a description; empty without a user frame."""
    frame = innermost_user_frame(frames)
    if frame is None:
        return Text("", "")
    known = activity_in_stack(frames)
    return translated(" at {place} in {function}{doing}").format(
        place=f"{os.path.basename(frame.path)}:{frame.line}",
        function=frame.function,
        doing=Text(f": {known.doing.en}", f"：{known.doing.zh}") if known is not None else "",
    )


def span_in_waiting_dump(mismatch: CollectiveMismatch) -> Span:
    """The dump file of a rank that waits, labelled with the call it is in."""
    call = translated("this rank is in {call}, call {number} of its group").format(
        call=_describe_call(mismatch.call), number=mismatch.call.sequence
    )
    return Span(mismatch.path, 1, label=call)


def _describe_call(call: RecordedCall) -> str:
    sizes = ", ".join(str(list(size)) for size in call.sizes[:3])
    types = "/".join(dict.fromkeys(call.types))
    return f"{call.operation}({sizes}{' ' if sizes and types else ''}{types})"
