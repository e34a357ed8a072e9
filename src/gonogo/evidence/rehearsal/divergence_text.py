"""Describes a divergence of ranks: the text and the places of a finding."""

from __future__ import annotations

import os
from collections.abc import Iterable

from gonogo.evidence.rehearsal.failures import first_few_names, frame_spans
from gonogo.evidence.rehearsal.rank_divergence import RankDivergence, depends_on_rank
from gonogo.finding import Span, Text, translated
from gonogo.finding.divergence import CollectiveCall, EnclosingCondition, Side
from gonogo.finding.frame import Frame
from gonogo.finding.ranks import capitalize_text, ranks_text
from gonogo.finding.words import PHASES

_COLLECTIVE_NAMES = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "allgather": "all_gather",
    "allgather_base": "all_gather",
    "allgather_coalesced": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
}


def describe_divergence(divergence: RankDivergence, primary_side: Side, reason: Text | None) -> Text:
    """What each side does, why (``reason``, and the condition that separated them), and the consequence."""
    parts = [
        _join_texts(_describe_side(side) for side in divergence.sides),
        reason,
        _condition(divergence, primary_side),
        _describe_batch_difference(divergence),
        _consequence(divergence),
    ]
    given = [part for part in parts if part is not None]
    return Text(" ".join(part.en for part in given), "".join(part.zh for part in given))


def _consequence(divergence: RankDivergence) -> Text:
    """The consequence of the divergence."""
    if divergence.divergence.kind == "other-size":
        return translated("NCCL does not check this: the run hangs, or continues with wrong results.")
    if divergence.divergence.earlier:
        return translated(
            "NCCL matches these calls with each other; from then on every call is matched with the wrong "
            "one, until the ranks deadlock: {where}"
        ).format(where=_join_texts(_describe_side(side) for side in divergence.divergence.sides))
    return translated("This is a deadlock: they wait for each other until the timeout (NCCL: 10 minutes).")


def _condition(divergence: RankDivergence, primary_side: Side) -> Text | None:
    """The condition on which the ranks took different paths, or None if none is found."""
    if divergence.rank_loop_exit is not None and divergence.left_loop is not None:
        side, other, loop = divergence.left_loop
        leaving = divergence.rank_loop_exit
        return translated(
            "{others} {have} left the loop at {place} by `{test}` (line {line}){made}; {ranks} {have_not}."
        ).format(
            others=capitalize_text(ranks_text(other.ranks)),
            have="has" if len(other.ranks) == 1 else "have",
            place=_file_and_line(loop),
            test=leaving.text,
            line=leaving.line,
            made=_describe_origin(leaving.made_of),
            ranks=ranks_text(side.ranks),
            have_not="has not" if len(side.ranks) == 1 else "have not",
        )
    if divergence.rank_condition is None and divergence.left_loop is not None:
        side, other, loop = divergence.left_loop
        return translated("{ranks} still run{s} the loop at {place} (`{test}`), which {others} {have} left.").format(
            ranks=capitalize_text(ranks_text(side.ranks)),
            s="s" if len(side.ranks) == 1 else "",
            place=_file_and_line(loop),
            test=loop.text,
            others=ranks_text(other.ranks),
            have="has" if len(other.ranks) == 1 else "have",
        )
    for side in (primary_side, *divergence.sides):
        for guard in divergence.conditions_of_side_alone(side)[:1]:
            return translated(
                "{ranks} got to this call because `{test}` at {place}{made} is {what} there; the others did not."
            ).format(
                ranks=capitalize_text(ranks_text(side.ranks)),
                test=guard.text,
                place=_file_and_line(guard),
                made=Text("", " ") if depends_on_rank([guard.text]) else _describe_origin(guard.made_of),
                what=translated("true") if guard.kind == "if" else translated("false", "condition"),
            )
    return None


def _describe_origin(origins: tuple[str, ...]) -> Text:
    """The rank-dependent expression that a condition's names were computed from, in brackets; else a blank."""
    found = next((text for text in origins if depends_on_rank([text])), None)
    if found is None:
        return Text("", " ")
    return Text(f" (computed from `{found}`)", f"（由 `{found}` 得出）")


def _describe_batch_difference(divergence: RankDivergence) -> Text | None:
    """What the ranks' last batches contain, if that differs."""
    if not divergence.batches_differ:
        return None
    read = [
        translated("{ranks} read batches with {names}").format(
            ranks=ranks_text(side.ranks), names=first_few_names((name for name, _ in side.batch), 6) or "-"
        )
        for side in divergence.sides
    ]
    return Text(
        f"Their last batches differ: {'; '.join(one.en for one in read)}.",
        f"它们最后的 batch 内容不同：{'；'.join(one.zh for one in read)}。",
    )


def divergence_spans(divergence: RankDivergence, primary_side: Side) -> tuple[Span, ...]:
    """The line of each side, that of ``primary_side`` first, then the conditions."""
    first = [primary_side, *(side for side in divergence.sides if side is not primary_side)]
    at: dict[tuple[str, int], tuple[Frame, list[tuple[Side, CollectiveCall]]]] = {}
    for side in first:
        frame = (side.call.innermost("user") or side.call.innermost("library")) if side.call else None
        if side.call is not None and frame is not None:
            at.setdefault((frame.path, frame.line), (frame, []))[1].append((side, side.call))
    marked: list[tuple[Frame | None, Text | None]] = []
    for frame, calls in at.values():
        calls.sort(key=lambda pair: pair[0].ranks)
        labels = [
            translated("{ranks}: {operator}").format(ranks=ranks_text(side.ranks), operator=_operator_name(call))
            for side, call in calls
        ]
        marked.append((frame, Text("; ".join(one.en for one in labels), "；".join(one.zh for one in labels))))
    left = divergence.left_loop if divergence.rank_condition is None else None
    if left is not None:
        loop = left[2]
        marked.append(
            (Frame(loop.path, loop.line, "", loop.text, "user"), translated("the loop that only some ranks have left"))
        )
    for side in first if left is None else ():
        for guard in divergence.conditions_of_side_alone(side)[:1]:
            frame = Frame(guard.path, guard.line, "", guard.text, "user")
            marked.append((frame, translated("this condition differs between ranks")))
    return frame_spans(*marked)


def _describe_side(side: Side) -> Text:
    call = side.call
    if call is None:
        ended = (
            translated("{ranks} had ended after {steps} optimizer steps.")
            if side.steps
            else translated("{ranks} had ended before the first optimizer step.")
        )
        return ended.format(ranks=capitalize_text(ranks_text(side.ranks)), steps=side.steps)
    frame = call.innermost("user") or call.innermost("library")
    what = first_few_names(call.parameters, 2) if call.parameters and not call.parameters[0].startswith("#") else ""
    if call.operator == "new_group":
        what = str(list(call.sizes))
    size = (
        f" ({first_few_names([f'{count:,}' for count in call.sizes], 3)} x {call.dtype})"
        if call.sizes and call.dtype
        else ""
    )
    return translated("{ranks} call{s} {operator}{what}{size}{module}{place} in {phase}, {step}.").format(
        ranks=capitalize_text(ranks_text(side.ranks)),
        s="s" if len(side.ranks) == 1 else "",
        operator=_operator_name(call),
        what=Text(f" for {what}", f"，对象为 {what}") if what else "",
        size=Text(size, size),
        module=Text(f" in module {call.module}", f"，模块 {call.module}") if call.module else "",
        place=Text(f" at {_file_and_line(frame)}", f"，位于 {_file_and_line(frame)}") if frame else "",
        phase=PHASES.get(call.phase, Text(call.phase, call.phase)),
        step=_describe_step(call),
    )


def _describe_step(call: CollectiveCall) -> Text:
    if call.phase in ("forward", "backward", "step"):
        return translated("step {n}").format(n=call.step + 1)
    if not call.step:
        return translated("before the first step")
    return translated("after {n} steps").format(n=call.step)


def _operator_name(call: CollectiveCall) -> str:
    """The operator's name in torch.distributed."""
    return _COLLECTIVE_NAMES.get(call.operator, call.operator)


def _file_and_line(frame: Frame | EnclosingCondition) -> str:
    return f"{os.path.basename(frame.path)}:{frame.line}"


def _join_texts(texts: Iterable[Text]) -> Text:
    listed = list(texts)
    return Text(" ".join(text.en for text in listed), "".join(text.zh for text in listed))
