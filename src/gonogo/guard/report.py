"""From the records of a guarded run to its report: findings, the verdict, what was covered and what was not."""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec.structs import replace

from gonogo.check.static_findings import NO_STATIC_FINDINGS, StaticFindings
from gonogo.evidence.guarded.ends import interrupted, roots, unseen
from gonogo.evidence.guarded.guarded_run import GuardedRun
from gonogo.evidence.guarded.standstill import find_hang
from gonogo.evidence.rehearsal.failures import few
from gonogo.finding import Finding, Report, Skipped, Text, verdict_of
from gonogo.finding.ranks import ranks_text
from gonogo.guard.findings import findings_in_guarded_run, findings_with_files
from gonogo.guard.summary import guarded_summary
from gonogo.judge.rehearsal_summary import seen_from

_NO_RANK = Skipped(
    Text("the training", "训练"),
    Text(
        "no process wrote a record: no Python that COMMAND starts trained anything, or it was started "
        "without site packages (python -I, -S), in a container without access to the folder, or with its own "
        "PYTHONPATH: if a script sets it, use export PYTHONPATH=DIR:$PYTHONPATH",
        "没有进程写下记录：COMMAND 启动的 Python 都没有训练，或它们不加载 site（python -I、-S）、运行在看不到该目录的容"
        "器中，或使用自己的 PYTHONPATH：脚本中要设置它时，请写 export PYTHONPATH=DIR:$PYTHONPATH 以保留原有内容",
    ),
)


def report_of(run: GuardedRun, folder: str | None = None, *, files: StaticFindings = NO_STATIC_FINDINGS) -> Report:
    """The report; places are named as they are seen from ``folder`` (default: the current one).

    ``files`` are what the files of the run showed before its start.

    NO-GO where a hazard is certain of an error; CANNOT-TELL where the command failed and nothing explains it, where no
    rank was seen, or where it still runs; else GO.
    """
    folder = os.getcwd() if folder is None else folder
    shown = findings_with_files(run, findings_in_guarded_run(run), files)
    findings = tuple(_seen_from(folder, finding) for finding in shown)
    return Report(
        command="run",
        verdict=verdict_of(findings, complete=run.exit_status == 0 and bool(run.ranks)),
        findings=findings,
        covered=tuple(_covered_items(run)),
        skipped=tuple(_skipped_items(run)),
        guarded_run=guarded_summary(run),
        notes=tuple(_notes(run)),
    )


def _seen_from(folder: str, finding: Finding) -> Finding:
    return replace(finding, spans=tuple(replace(span, path=seen_from(folder, span.path)) for span in finding.spans))


def _covered_items(run: GuardedRun) -> Iterator[Text]:
    if not run.ranks:
        return
    ranks = ranks_text(rank.rank for rank in run.ranks)
    steps = max(rank.last_step for rank in run.ranks)
    yield Text("{ranks} of {world}, {steps} steps", "{world} 个 rank 中的 {ranks}，{steps} 步").format(
        ranks=ranks, world=run.world_size, steps=steps
    )
    compared = next((rank.compared for rank in run.ranks if rank.compared is not None), None)
    if compared is not None and not compared.missing:
        facts = next((rank.joined.facts for rank in run.ranks if rank.joined is not None), {})
        summed = Text("; a test all_reduce gave the right sum", "；一次测试性的 all_reduce 结果正确")
        yield Text(
            "{count} settings compared across the ranks before the first step{summed}",
            "第一步之前，在各 rank 间比较了 {count} 项设置{summed}",
        ).format(count=len(facts), summed=summed if compared.sum_checked else "")
    if any(rank.placements for rank in run.ranks):
        yield Text(
            "devices of parameters, buffers, optimizer states and ZeRO partitions",
            "参数、buffer、优化器状态与 ZeRO 分片所在的设备",
        )


def _skipped_items(run: GuardedRun) -> Iterator[Skipped]:
    if not run.ranks:
        yield _NO_RANK
    for rank in run.ranks:
        for fault in rank.faults[:1]:
            yield Skipped(
                Text("rank {rank}: {part}", "rank {rank}：{part}").format(rank=rank.rank, part=fault.part or "guard"),
                Text(
                    "switched off by an internal error in the guard: {type}: {message}",
                    "监护自身出错，已关闭：{type}: {message}",
                ).format(type=fault.type, message=fault.message[:200]),
            )
    if absent := unseen(run):
        yield Skipped(
            Text(ranks_text(absent).en, ranks_text(absent).zh),
            Text(
                "they wrote nothing to this folder: with several nodes, --folder must be on a shared file system",
                "它们没有向该目录写入任何内容：多机时 --folder 必须是各节点都能看到的目录",
            ),
        )
    if run.ranks and all(rank.compared is None for rank in run.ranks) and run.world_size > 1:
        yield Skipped(
            Text("whether the ranks have the same setup", "各 rank 的环境是否一致"),
            Text("training did not reach its first step", "训练没有到达第一步"),
        )
    if run.ranks and run.exit_status is None:
        yield Skipped(
            Text("how the run ended", "如何结束"),
            Text(
                "the command was still running when this was written, or gonogo run itself was killed before its end",
                "写下报告时命令仍在运行，或 gonogo run 自身在其结束之前被杀死",
            ),
        )


def _notes(run: GuardedRun) -> Iterator[Text]:
    if interrupted(run):
        yield Text("The run was stopped from outside (Ctrl-C or a signal).", "运行被外部终止（Ctrl-C 或信号）。")
    first = roots(run)
    others = sorted({death.rank for death in first[1:]})
    if first and others:
        yield Text(
            "Rank {rank} failed first, followed by {others}.", "最先失败的是 rank {rank}；其后是 {others}。"
        ).format(rank=first[0].rank, others=ranks_text(others))
    elif first:
        yield Text("Rank {rank} failed first.", "最先失败的是 rank {rank}。").format(rank=first[0].rank)
    restarted = [str(rank.rank) for rank in run.ranks if rank.earlier]
    if restarted:
        yield Text(
            "The launcher restarted {ranks}; this report covers the last start.",
            "启动器重启过 {ranks}；报告针对最后一次启动。",
        ).format(ranks=few(restarted))
    for rank in run.ranks:
        longest = max(rank.resumed, key=lambda one: one.seconds, default=None)
        if longest is not None and run.exit_status == 0:
            yield Text(
                "Rank {rank} stalled for {seconds:.0f} s at step {step}, then continued on its own.",
                "rank {rank} 在第 {step} 步卡住 {seconds:.0f} 秒，随后自行恢复。",
            ).format(rank=rank.rank, seconds=longest.seconds, step=longest.step)
            break
    if not first and run.exit_status not in (None, 0) and run.ranks and not interrupted(run) and not find_hang(run):
        yield Text(
            "The command exited with status {status}, but no training rank failed: see the last lines of the "
            "launcher's output.",
            "命令以状态码 {status} 结束，但没有训练 rank 失败：请看启动器自己的最后几行。",
        ).format(status=run.exit_status)
