"""Turns the answers of ``--solve`` into a report."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict

from gonogo.finding import Report, Text, Verdict, translated
from gonogo.finding.trials import planned
from gonogo.trials.plan.answer import (
    covered_items,
    files_to_show,
    make_plan,
    missing_input_notes,
    skipped_checks,
    summarize_strategy,
    summarize_too_large,
)
from gonogo.trials.plan.sizing.batches import global_batch
from gonogo.trials.plan.solve import Solution, SolveResult

_ONLY_CHECKPOINTED_TRIED = translated(
    "only strategies with gradient checkpointing were tried: they need the least memory"
)


def solved_report(solved: SolveResult, notes: Sequence[Text] = ()) -> Report:
    """GO if an answer was rehearsed at full depth, NO-GO if nothing fits, else CANNOT-TELL."""
    whole = [one.choice for one in solved.solutions if one.choice.source == "rehearsed"]
    verdict = Verdict.GO if whole else Verdict.CANNOT_TELL if solved.solutions or solved.failed else Verdict.NO_GO
    own = [] if solved.unknown == "micro-batch" else [_ONLY_CHECKPOINTED_TRIED]
    return Report(
        command="plan",
        verdict=verdict,
        covered=tuple(covered_items(solved, whole)),
        skipped=tuple(skipped_checks(solved.failed, solved.request)),
        plan=_plan_report(solved),
        notes=(*notes, *own, *missing_input_notes(solved.request)),
    )


def _plan_report(solved: SolveResult) -> planned.Plan:
    request = solved.request
    return make_plan(
        request,
        solved.facts,
        global_batch(request),
        solve=solved.unknown,
        fitting=tuple(_solution_summary(one) for one in solved.solutions),
        too_large=tuple(summarize_too_large(choice, request) for choice in solved.too_large),
        seconds=solved.seconds,
        files=tuple(files_to_show(one.choice, one.request, solved.facts) for one in solved.solutions),
    )


def _solution_summary(solution: Solution) -> planned.SolutionSummary:
    machine = solution.request.machine
    return planned.SolutionSummary(
        **asdict(summarize_strategy(solution.choice, solution.request, None)),
        solved=solution.value,
        at_limit=solution.at_limit,
        gpus=machine.count,
        nodes=machine.nodes,
    )
