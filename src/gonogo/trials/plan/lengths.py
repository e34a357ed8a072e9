"""GPU memory of the best strategies at other sequence lengths: ``gonogo plan --memory-at``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from gonogo.finding import UserError, translated
from gonogo.finding.trials.planned import MemoryAtLength
from gonogo.trials.plan.candidates import Candidates
from gonogo.trials.plan.choice import Choice, estimate_from_peak
from gonogo.trials.plan.measure import Meter
from gonogo.trials.plan.request import PlanRequest
from gonogo.trials.plan.search import PlanResult, ReportProgress

_MAX_LENGTHS = 8
_MIN_TOKENS = 8
_MAX_STRATEGIES = 3


def parse_lengths(text: str | None) -> tuple[int, ...]:
    """The lengths of ``2048,8192``, in ascending order; empty for None. Raises UserError for anything else."""
    if text is None:
        return ()
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and len(word) < 9 and int(word) >= _MIN_TOKENS for word in words):
        raise UserError(
            translated("--memory-at {text}: give numbers of tokens from {least} up, such as 2048,4096,8192").format(
                text=text, least=_MIN_TOKENS
            )
        )
    lengths = sorted({int(word) for word in words})
    if len(lengths) > _MAX_LENGTHS:
        raise UserError(
            translated("--memory-at: {count} lengths, but at most {most} are rehearsed").format(
                count=len(lengths), most=_MAX_LENGTHS
            )
        )
    return tuple(lengths)


def check_lengths(lengths: Sequence[int], request: PlanRequest, meter: Meter) -> None:
    """Raise UserError if the model or the task can't take one of the lengths."""
    if not lengths:
        return
    facts = meter.facts()
    prompt = 0 if request.task is None else request.task.prompt_len
    for length in lengths:
        if length > facts.positions > 0 and not facts.computes_positions:
            raise UserError(
                translated("--memory-at {length}: {name} has {positions} positions").format(
                    length=length, name=request.name, positions=facts.positions
                )
            )
        if length <= prompt:
            raise UserError(
                translated("--memory-at {length}: prompts alone have {prompt} tokens (--prompt-len)").format(
                    length=length, prompt=prompt
                )
            )


def with_lengths(plan: PlanResult, lengths: Sequence[int], meter: Meter, report_progress: ReportProgress) -> PlanResult:
    """The plan with the memory of its first strategies at each length, with the micro-batch that they have in it.

    If no strategy fits, that of the one that lacks the least. Each length is rehearsed at two depths. A length that a
    strategy can't split, or whose rehearsal fails, is left out.
    """
    if not lengths:
        return plan
    report_progress(translated("rehearsing other lengths"))
    trials = [
        (choice, length, Candidates(_with_length(plan.request, length), plan.facts, meter))
        for choice in plan.fitting[:_MAX_STRATEGIES] or [*plan.unsettled, *plan.too_large][:1]
        for length in lengths
    ]
    cells = [candidates.short_measurements(choice.strategy) for choice, _, candidates in trials]
    answers = iter(meter.measure([cell for some in cells for cell in some]))
    found = []
    for (choice, length, candidates), some in zip(trials, cells, strict=True):
        peak = candidates.extrapolated_peak(choice.strategy, [next(answers) for _ in some])
        if peak is not None:
            request = candidates.trainer_request(choice.strategy.rollout.gpus)
            estimate = estimate_from_peak(request, plan.facts, choice.strategy, choice.strategy, peak, "extended")
            found.append(_summarize(length, estimate))
    return replace(plan, memory_at=tuple(found), rehearsed=meter.rehearsed, reused=meter.reused)


def _with_length(request: PlanRequest, length: int) -> PlanRequest:
    task = request.task
    longer = task and structs.replace(task, completion_len=length - task.prompt_len)
    return structs.replace(request, seq_len=length, task=longer)


def _summarize(length: int, choice: Choice) -> MemoryAtLength:
    label = choice.strategy.label
    return MemoryAtLength(
        strategy=label.en,
        strategy_zh=label.zh,
        micro_batch=choice.strategy.micro_batch,
        seq_len=length,
        allocated_bytes=round(choice.allocated),
        reserved_bytes=round(choice.reserved),
        band=choice.band,
        fits=choice.room.fits,
    )
