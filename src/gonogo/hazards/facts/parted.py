"""Where the ranks of a rehearsal parted, in words and places: what the hazards of hanging say of it."""

from __future__ import annotations

import os
from collections.abc import Iterable

from gonogo.evidence.rehearsal.divergence import Call, Guard, Side
from gonogo.evidence.rehearsal.failures import PHASES, few, places
from gonogo.evidence.rehearsal.frame import Frame
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Span, Text
from gonogo.hazards.facts.parting import Parting

_OPERATORS = {
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


class Parted(Parting):
    """The divergence, in words."""

    def said(self) -> Text:
        """What each side does, a sentence each."""
        told = [_said(side) for side in self.sides]
        return Text(en=" ".join(one.en for one in told), zh="".join(one.zh for one in told))

    def outcome(self) -> Text:
        """What comes of it."""
        if self.divergence.parting == "other-size":
            return Text(
                en="NCCL does not compare them: the run hangs, or goes on with wrong numbers.",
                zh="NCCL 不检查这一点：训练会卡住，或带着错误的数值继续。",
            )
        if self.divergence.apart:
            return Text(
                en="These are taken for one another, from then on every call meets another one, until ranks wait for "
                "ever: {where}",
                zh="它们被错误地配对，此后每次调用都与另一处配对，直到有 rank 永远等待：{where}",
            ).format(where=Text(*_joined(_said(side) for side in self.divergence.sides)))
        return Text(
            en="They wait for each other until the time-out (NCCL: 10 minutes).",
            zh="它们互相等待，直到超时（NCCL 为 10 分钟）。",
        )

    def why(self) -> Text | None:
        """The condition by which the ranks went different ways, or None where none is seen."""
        if self.alone is None and self.left_loop is not None:
            side, other, loop = self.left_loop
            return Text(
                en="{ranks} stand{s} in the loop at {place} (`{test}`), which {others} {have} left.",
                zh="{ranks} 还在 {place} 的循环中（`{test}`），而 {others} 已经离开。",
            ).format(
                ranks=_capital(ranks_text(side.ranks)),
                s="s" if len(side.ranks) == 1 else "",
                place=_place(loop),
                test=loop.text,
                others=ranks_text(other.ranks),
                have="has" if len(other.ranks) == 1 else "have",
            )
        for side in (self.focus, *self.sides):
            for guard in self.own_guards(side)[:1]:
                return Text(
                    en="{ranks} came there because `{test}` at {place} is {what} there; the others did not.",
                    zh="{ranks} 走到那里，是因为 {place} 处的 `{test}` 在其上{what}；其他 rank 没有。",
                ).format(
                    ranks=_capital(ranks_text(side.ranks)),
                    test=guard.text,
                    place=_place(guard),
                    what=Text("true", "为真") if guard.kind == "if" else Text("false", "为假"),
                )
        return None

    def cause_text(self, reason: Text | None = None) -> Text:
        """The whole cause: what each side does, why, and what comes of it."""
        parts = [self.said(), reason, self.why(), self._batches_said(), self.outcome()]
        told = [part for part in parts if part is not None]
        return Text(en=" ".join(part.en for part in told), zh="".join(part.zh for part in told))

    def _batches_said(self) -> Text | None:
        """What the ranks' batches hold, where that differs."""
        if not self._different_batches():
            return None
        told = [
            Text("{ranks} read {names}", "{ranks} 读到 {names}").format(
                ranks=ranks_text(side.ranks), names=few((name for name, _ in side.batch), 6) or "-"
            )
            for side in self.sides
        ]
        return Text(
            en=f"Their last batches differ: {'; '.join(one.en for one in told)}.",
            zh=f"它们最后的 batch 内容不同：{'；'.join(one.zh for one in told)}。",
        )

    def spans(self) -> tuple[Span, ...]:
        """The line of each side, then the conditions, then the libraries' lines below."""
        first = [self.focus, *(side for side in self.sides if side is not self.focus)]
        at: dict[tuple[str, int], tuple[Frame, list[tuple[Side, Call]]]] = {}
        for side in first:
            frame = (side.call.innermost("user") or side.call.innermost("library")) if side.call else None
            if side.call is not None and frame is not None:
                at.setdefault((frame.path, frame.line), (frame, []))[1].append((side, side.call))
        marked: list[tuple[Frame | None, Text | None]] = []
        for frame, calls in at.values():
            calls.sort(key=lambda pair: pair[0].ranks)
            labels = [
                Text("{ranks}: {operator}", "{ranks} 调用 {operator}").format(
                    ranks=ranks_text(side.ranks), operator=operator_of(call)
                )
                for side, call in calls
            ]
            marked.append((frame, Text("; ".join(one.en for one in labels), "；".join(one.zh for one in labels))))
        left = self.left_loop if self.alone is None else None
        if left is not None:
            loop = left[2]
            marked.append((Frame(loop.path, loop.line, "", loop.text, "user"), Text("the loop", "循环")))
        for side in first if left is None else ():
            for guard in self.own_guards(side)[:1]:
                frame = Frame(guard.path, guard.line, "", guard.text, "user")
                marked.append((frame, Text("not alike on all ranks", "各 rank 的结果不同")))
        return places(*marked)

    @property
    def module(self) -> str | None:
        """The module of the call that tells most."""
        return self.focus.call.module if self.focus.call is not None else None

    @property
    def parameter(self) -> str | None:
        """The first parameter of the call that tells most."""
        call = self.focus.call
        return next((name for name in call.parameters if not name.startswith("#")), None) if call else None


def parted(record: RehearsalRecord, name: str) -> Parted | None:
    """Where the ranks parted, if that is for the hazard of this name to tell."""
    if record.divergence is None:
        return None
    found = Parted(record, record.divergence)
    return found if found.cause == name else None


def operator_of(call: Call) -> str:
    """The operator as torch.distributed spells it."""
    return _OPERATORS.get(call.operator, call.operator)


def ranks_text(ranks: Iterable[int]) -> Text:
    """``rank 3``, ``ranks 0-2, 5``."""
    ordered = sorted(ranks)
    runs: list[list[int]] = []
    for rank in ordered:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    joined = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return Text(f"rank {joined}" if len(ordered) == 1 else f"ranks {joined}", f"rank {joined}")


def _said(side: Side) -> Text:
    call = side.call
    if call is None:
        return Text(
            en="{ranks} had ended after {steps} optimizer steps.", zh="{ranks} 在 {steps} 次参数更新后已经结束。"
        ).format(ranks=_capital(ranks_text(side.ranks)), steps=side.steps)
    frame = call.innermost("user") or call.innermost("library")
    what = few(call.parameters, 2) if call.parameters and not call.parameters[0].startswith("#") else ""
    if call.operator == "new_group":
        what = str(list(call.sizes))
    size = f" ({few([f'{count:,}' for count in call.sizes], 3)} x {call.dtype})" if call.sizes and call.dtype else ""
    return Text(
        en="{ranks} call{s} {operator}{what}{size}{module}{place} in {phase}, {step}.",
        zh="{ranks} 在{phase}（{step}）调用 {operator}{what}{size}{module}{place}。",
    ).format(
        ranks=_capital(ranks_text(side.ranks)),
        s="s" if len(side.ranks) == 1 else "",
        operator=operator_of(call),
        what=Text(f" for {what}", f"，对象为 {what}") if what else "",
        size=Text(size, size),
        module=Text(f" in module {call.module}", f"，模块 {call.module}") if call.module else "",
        place=Text(f" at {_place(frame)}", f"，位于 {_place(frame)}") if frame else "",
        phase=PHASES.get(call.phase, Text(call.phase, call.phase)),
        step=Text("step {n}", "第 {n} 步").format(n=call.step + 1)
        if call.phase in ("forward", "backward", "step")
        else Text("after {n} steps", "已完成 {n} 步").format(n=call.step),
    )


def _place(at: Frame | Guard) -> str:
    return f"{os.path.basename(at.path)}:{at.line}"


def _capital(text: Text) -> Text:
    return Text(text.en[:1].upper() + text.en[1:], text.zh)


def _joined(texts: Iterable[Text]) -> tuple[str, str]:
    told = list(texts)
    return " ".join(text.en for text in told), "".join(text.zh for text in told)
