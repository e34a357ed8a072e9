"""Makes the report of a guarded run from its records: findings, verdict, what was and was not covered."""

from __future__ import annotations

import os
from collections.abc import Iterator

from gonogo.check.static_findings import NO_STATIC_FINDINGS, StaticFindings
from gonogo.evidence.guarded.ends import ranks_without_records, root_deaths, was_interrupted
from gonogo.evidence.guarded.guarded_run import GuardedRun
from gonogo.evidence.guarded.standstill import find_hang
from gonogo.evidence.rehearsal.failures import first_few_names
from gonogo.finding import Report, Skipped, Text, translated, verdict_of
from gonogo.finding.ranks import ranks_text
from gonogo.guard.findings import findings_in_guarded_run, findings_with_files
from gonogo.guard.summary import guarded_summary
from gonogo.judge.rehearsal_summary import with_relative_paths

_NO_RANK = Skipped(
    translated("the training"),
    translated(
        "no process wrote a record: no Python process started by COMMAND trained anything, or it was started "
        "without site packages (python -I, -S), in a container without access to the folder, or with its own "
        "PYTHONPATH: if a script sets it, use export PYTHONPATH=DIR:$PYTHONPATH"
    ),
)


def guarded_run_report(
    run: GuardedRun, folder: str | None = None, *, files: StaticFindings = NO_STATIC_FINDINGS
) -> Report:
    """The report of a guarded run; paths are relative to ``folder`` (default: the current one).

    ``files`` are the findings of the check of the run's files before its start.

    NO-GO if a hazard is certain of an error; CANNOT-TELL if the command failed and nothing explains it, if no rank
    was seen, or if it is still running; else GO.
    """
    folder = os.getcwd() if folder is None else folder
    shown = findings_with_files(run, findings_in_guarded_run(run), files)
    findings = tuple(with_relative_paths(folder, finding) for finding in shown)
    return Report(
        command="run",
        verdict=verdict_of(findings, complete=run.exit_status == 0 and bool(run.ranks)),
        findings=findings,
        covered=tuple(_covered_items(run)),
        skipped=tuple(_skipped_items(run)),
        guarded_run=guarded_summary(run),
        notes=tuple(_report_notes(run)),
    )


def _covered_items(run: GuardedRun) -> Iterator[Text]:
    if not run.ranks:
        return
    ranks = ranks_text(rank.rank for rank in run.ranks)
    steps = max(rank.last_step for rank in run.ranks)
    yield translated("{ranks} of {world}, {steps} steps").format(ranks=ranks, world=run.world_size, steps=steps)
    compared = next((rank.compared for rank in run.ranks if rank.compared is not None), None)
    if compared is not None and not compared.missing:
        facts = next((rank.joined.facts for rank in run.ranks if rank.joined is not None), {})
        summed = translated("; a test all_reduce gave the right sum")
        yield translated("{count} settings compared across the ranks before the first step{summed}").format(
            count=len(facts), summed=summed if compared.sum_checked else ""
        )
    if any(rank.placements for rank in run.ranks):
        yield translated("devices of parameters, buffers, optimizer states and ZeRO partitions")


def _skipped_items(run: GuardedRun) -> Iterator[Skipped]:
    if not run.ranks:
        yield _NO_RANK
    for rank in run.ranks:
        for fault in rank.faults[:1]:
            yield Skipped(
                translated("rank {rank}: {part}").format(rank=rank.rank, part=fault.part or "guard"),
                translated("switched off by an internal error in the guard: {type}: {message}").format(
                    type=fault.type, message=fault.message[:200]
                ),
            )
    if absent := ranks_without_records(run):
        yield Skipped(
            Text(ranks_text(absent).en, ranks_text(absent).zh),
            translated(
                "they wrote nothing to this folder: with several nodes, --folder must be on a shared file system"
            ),
        )
    if run.ranks and all(rank.compared is None for rank in run.ranks) and run.world_size > 1:
        yield Skipped(
            translated("whether the ranks have the same setup"), translated("training did not reach its first step")
        )
    if run.ranks and run.exit_status is None:
        yield Skipped(
            translated("how the run ended"),
            translated(
                "the command was still running when this was written, or gonogo run itself was killed before it "
                "finished"
            ),
        )


def _report_notes(run: GuardedRun) -> Iterator[Text]:
    if was_interrupted(run):
        yield translated("The run was stopped from outside (Ctrl-C or a signal).")
    first = root_deaths(run)
    others = sorted({death.rank for death in first[1:]})
    if first and others:
        yield translated("Rank {rank} failed first, followed by {others}.").format(
            rank=first[0].rank, others=ranks_text(others)
        )
    elif first:
        yield translated("Rank {rank} failed first.").format(rank=first[0].rank)
    restarted = [str(rank.rank) for rank in run.ranks if rank.earlier]
    if restarted:
        yield translated("The launcher restarted {ranks}; this report covers the last start.").format(
            ranks=first_few_names(restarted)
        )
    for rank in run.ranks:
        longest = max(rank.resumed, key=lambda one: one.seconds, default=None)
        if longest is not None and run.exit_status == 0:
            yield translated(
                "Rank {rank} stalled for {seconds:.0f} s at step {step}, then continued on its own."
            ).format(rank=rank.rank, seconds=longest.seconds, step=longest.step)
            break
    if not first and run.exit_status not in (None, 0) and run.ranks and not was_interrupted(run) and not find_hang(run):
        yield translated(
            "The command exited with status {status}, but no training rank failed: see the last lines of the "
            "launcher's output."
        ).format(status=run.exit_status)
