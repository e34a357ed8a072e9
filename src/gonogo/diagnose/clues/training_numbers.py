"""What the numbers of the steps say in a log without an exception: a loss that is lost, gradients of zero, a jump."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import median
from typing import NamedTuple

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.patterns import Pattern, lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.failure import FailureFacts
from gonogo.finding.log_answer import Clue, CluePlace

_NUMBER = (
    r"['\"]?\s?[:=]?\s*['\"]?(?:tensor\()?"
    r"(?P<value>[-+]?(?:\d{1,12}(?:\.\d{1,20})?(?:[eE][-+]?\d{1,3})?|nan|inf(?:inity)?))\b"
)
_LOSS_PATTERN = Pattern(rf"(?i)(?:^|[\s,{{('\"|])(?:lm |train[_/])?loss{_NUMBER}")
_GRADIENT_NORM_PATTERN = Pattern(rf"(?i)(?:^|[\s,{{('\"|/])(?:global_?)?grad(?:ient)?[ _]?norm{_NUMBER}")
_STEP_PATTERN = lazy_compile(
    r"(?i)\b(?:global_?step|step|iteration|iter)['\"]?\s*[:=]?\s*(\d{1,9})|['\"]epoch['\"]: ?['\"]?([\d.]{1,12})"
)
_LOSS_SCALE_PATTERN = Pattern(r"(?i)OVERFLOW!|loss[ _]scale")
_MAX_VALUES = 2000
_FEWEST = 3
_JUMP = 2.5
_FEWEST_BEFORE_JUMP = 4
_FOLLOWING_HAZARDS = ("gpu-oom-activations", "gpu-oom-model-states")


class StepValue(NamedTuple):
    """A number that a line of a step prints."""

    value: float
    line: LogLine


def training_number_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """Signs of a run that goes on and learns nothing; beside an exception, only a loss that was lost before it."""
    if facts.collectives or log.says(_LOSS_SCALE_PATTERN):
        return
    losses = _values(log, _LOSS_PATTERN)
    if facts.chain:
        if (lost := _lost_before(losses, facts)) is not None:
            yield lost
        return
    norms = _values(log, _GRADIENT_NORM_PATTERN)
    clue = _not_finite(losses, norms) or _zero_gradients(losses, norms) or _jump(losses)
    if clue is not None:
        yield clue


def _values(log: FailureLog, pattern: Pattern) -> list[StepValue]:
    found = islice(log.find_all(pattern), _MAX_VALUES)
    return [StepValue(float(one.match.group("value")), one.line) for one in found]


def _lost_before(losses: Sequence[StepValue], facts: FailureFacts) -> Clue | None:
    """The last loss before the exception, if it is no number: then that was the first failure in time."""
    raised = facts.chain[0]
    before = [one for one in losses if one.line.path == raised.log and one.line.number < raised.line]
    if not before or math.isfinite(before[-1].value):
        return None
    finite = next((index for index in range(len(before), 0, -1) if math.isfinite(before[index - 1].value)), 0)
    first = before[finite]
    return Clue(
        translated(
            "the loss was {value}{when} already, before {type} was raised: what was raised may only follow from it (a "
            "router without finite scores sends all tokens to one expert, whose memory runs out; an index is made of "
            "NaN). Look for the first number that was lost: run that step once with "
            "torch.autograd.set_detect_anomaly(True), and without fused kernels and packing"
        ).format(value=f"{first.value:g}", when=_step_of(first.line), type=raised.type),
        (CluePlace(first.line.path, first.line.number, first.line.text.strip()[:200]),),
        decides=True,
        secondary=_FOLLOWING_HAZARDS,
    )


def _not_finite(losses: Sequence[StepValue], norms: Sequence[StepValue]) -> Clue | None:
    """The first loss that is not a number, if none is one again after it."""
    lost = next((index for index, one in enumerate(losses) if not math.isfinite(one.value)), None)
    if lost is None or math.isfinite(losses[-1].value) or len(losses) - lost < 2:
        return None
    first, before = losses[lost], losses[lost - 1] if lost else None
    norm = next((one for one in norms if not math.isfinite(one.value)), None)
    earlier = norm is not None and norm.line.number < first.line.number
    return Clue(
        translated(
            "the loss is {value}{when} for the first time{before}, and never a number again{norm}. {look}"
        ).format(
            value=f"{first.value:g}",
            when=_step_of(first.line),
            before=Text(f" ({before.value:g} just before)", f"（此前为 {before.value:g}）")
            if before is not None
            else "",
            norm=translated("; the gradient norm was lost{when} already").format(when=_step_of(norm.line))
            if earlier and norm is not None
            else "",
            look=translated(
                "The forward was finite before that update: look at the gradients of that step (a division by 0 or 0 x "
                "inf in the loss, masked or padded positions of -inf), the learning rate and clipping"
            )
            if earlier
            else translated(
                "Look at that batch (a row without labels, fully masked, of another length than the others), and at "
                "what the loss and the optimizer's update divide by or take the logarithm of (masked or padded "
                "positions of -inf); run once with torch.autograd.set_detect_anomaly(True), and once with plain AdamW, "
                "to see which of them it is"
            ),
        ),
        (CluePlace(first.line.path, first.line.number, first.line.text.strip()[:200]),),
        decides=True,
    )


def _zero_gradients(losses: Sequence[StepValue], norms: Sequence[StepValue]) -> Clue | None:
    """Gradient norms of 0 in every step, while the loss isn't 0."""
    if len(norms) < _FEWEST or any(one.value != 0 for one in norms) or not any(one.value for one in losses):
        return None
    values = [one.value for one in losses if math.isfinite(one.value)]
    return Clue(
        translated(
            "the gradient norm is 0 in all {count} steps that the log shows, and the loss stays between {low} and "
            "{high}: no gradient reaches the parameters. The loss that is reported is not the one that backward gets "
            "(a part of it was left out, detached or computed without a graph; a fused or chunked loss that returns it "
            "as a by-product only), every label is masked (-100), or the parameters that the optimizer has are not "
            "those of the model. To tell: use the plain loss once (no Liger, no custom or distillation loss), and "
            "print which parameters have a grad"
        ).format(count=len(norms), low=f"{min(values):g}", high=f"{max(values):g}"),
        (CluePlace(norms[0].line.path, norms[0].line.number, norms[0].line.text.strip()[:200]),),
        decides=True,
    )


def _jump(losses: Sequence[StepValue]) -> Clue | None:
    """A loss that rises at once to several times what it was, and stays there."""
    for index in range(_FEWEST_BEFORE_JUMP, len(losses) - 1):
        before, after = [one.value for one in losses[:index]], [one.value for one in losses[index:]]
        usual = median(before[-10:])
        if usual > 0.1 and max(before[-10:]) * _JUMP < min(after):
            at = losses[index]
            return Clue(
                translated(
                    "the loss jumps from {usual} to {value}{when}, and stays there. Compare what changed at that step: "
                    "a resume (other weights, data order or optimizer state), a batch of other rows, the learning "
                    "rate, a weight that was overwritten; resume from a checkpoint before it with a lower learning "
                    "rate to tell"
                ).format(usual=f"{usual:g}", value=f"{at.value:g}", when=_step_of(at.line)),
                (CluePlace(at.line.path, at.line.number, at.line.text.strip()[:200]),),
                decides=True,
            )
    return None


def _step_of(line: LogLine) -> Text:
    found = _STEP_PATTERN.search(line.text)
    if found is None:
        return translated(" in line {line}").format(line=line.number)
    step, epoch = found.groups()
    return Text(f" at step {step}", f"（第 {step} 步）") if step else Text(f" at epoch {epoch}", f"（epoch {epoch}）")
