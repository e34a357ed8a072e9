"""Reports for the HTML page: one whose charts have all that they can show, one made of hostile text."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, cast

import msgspec
from plan_facts import request
from plan_meter import FakeMeter
from whole_runs import RUNS

from gonogo.diagnose.findings import read_failure
from gonogo.evidence.guarded.guarded_run import GuardedRun
from gonogo.evidence.rehearsal.record import CATEGORIES, RehearsalRecord
from gonogo.finding import Certainty, Finding, Fix, Report, Severity, Span, Text, Verdict
from gonogo.finding.as_run import AsRun
from gonogo.finding.call import Invocation
from gonogo.finding.rehearsal import (
    AlsoRehearsed,
    GpuModel,
    MemoryTimeline,
    ModuleMemory,
    StepScaling,
    downsample_timeline,
)
from gonogo.finding.trials import cured
from gonogo.guard.report import guarded_run_report
from gonogo.rehearse.answer import rehearsal_report
from gonogo.rehearse.baseline import compare_with_baseline, read_baseline
from gonogo.report import render
from gonogo.report.answer.command_placeholders import with_invocation
from gonogo.trials.plan.answer_solved import solved_report
from gonogo.trials.plan.measure import Meter
from gonogo.trials.plan.solve import solve
from gonogo.virtual.memory.timeline import Moment, Timeline

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\u202e"
PEAK = 61 << 30


def charted_report() -> Report:
    """A rehearsal of two ranks: a sawtooth of 100,000 allocations on each, whose one peak is :data:`PEAK` bytes."""
    report = RUNS["rehearse_memory"]()
    assert report.rehearsal is not None
    rank = report.rehearsal.ranks[0]
    device = rank.devices[0]
    modules = tuple(
        ModuleMemory(f"model.layers.{layer}.mlp", {"parameters": 1 << 30, "activations": (layer + 1) << 24}, 3)
        for layer in range(4)
    )
    rank = msgspec.structs.replace(
        rank,
        devices=(msgspec.structs.replace(device, modules=modules),),
        timelines=(_timeline(device.device), _timeline("cpu")),
        host_modules=(ModuleMemory("model.embed_tokens", {"optimizer": 7 << 30}, 1),),
    )
    ranks = (rank, msgspec.structs.replace(rank, rank=1))
    return msgspec.structs.replace(report, rehearsal=msgspec.structs.replace(report.rehearsal, ranks=ranks))


def rehearsed_report(activations: float = 1.0, outcome: str = "completed", **more: Any) -> Report:
    """A GO of two ranks whose activations are so many times what they were, and their peak with them."""
    report = charted_report()
    assert report.rehearsal is not None
    ranks = tuple(
        msgspec.structs.replace(
            rank,
            outcome=outcome,
            peak_reserved_bytes=int((30 + 10 * activations) * (1 << 30)),
            peak_by_category={"parameters": 20 * (1 << 30), "activations": int(10 * (1 << 30) * activations)},
            timelines=tuple(
                msgspec.structs.replace(
                    line,
                    by_category={
                        name: tuple(int(one * activations) for one in held) if name == "activations" else held
                        for name, held in line.by_category.items()
                    },
                )
                for line in rank.timelines
            ),
            **more.pop("rank", {}),
        )
        for rank in report.rehearsal.ranks
    )
    rehearsal = msgspec.structs.replace(report.rehearsal, ranks=ranks, **more.pop("rehearsal", {}))
    verdict = more.pop("verdict", Verdict.GO)
    return msgspec.structs.replace(report, verdict=verdict, rehearsal=rehearsal, findings=(), **more)


def what_if_report(shortest: int = 2048) -> Report:
    """A GO on ZeRO-2 with two samples of up to 2,048 tokens, and beside it the same on ZeRO-3 (``--also``)."""
    run = AsRun(samples=(2, 2), tokens=(shortest, 2048), accumulation=(2, 2), strategy="DeepSpeed ZeRO-2", stage=2,
                weights_on=("cuda",), states_on=("cuda",), products="bfloat16", attention=("sdpa",))  # fmt: skip
    report = rehearsed_report(rank={"as_run": run, "steps": 2})
    assert report.rehearsal is not None
    rank, *others = report.rehearsal.ranks
    device = msgspec.structs.replace(rank.devices[0], peak_allocated_bytes=PEAK, peak_reserved_bytes=PEAK + (3 << 30))
    lines = tuple(msgspec.structs.replace(one, phases=("backward",) * len(one.phases)) for one in rank.timelines)
    rank = msgspec.structs.replace(rank, peak_allocated_bytes=PEAK, devices=(device,), timelines=lines)
    also = AlsoRehearsed({"stage": "3"}, "GO", None, 40 << 30, 44 << 30, 1 << 37, 3.0, 2000.0, 2, 2048, 2,
                         downsample_timeline(rank.timelines[0]))  # fmt: skip
    gpus = (GpuModel("H100-80G", 80 << 30, 1 << 30, True), GpuModel("V100-16G", 16 << 30, 1 << 30, False))
    ranks = (rank, *(msgspec.structs.replace(one, peak_allocated_bytes=0) for one in others))
    bounds = ((0.5, 0.6, 0.7), (1.0, 1.0, 1.0), (1.5, 1.3, 1.4), (2.0, 1.8, 1.9))
    rehearsal = msgspec.structs.replace(report.rehearsal, ranks=ranks, also=(also,), gpus=gpus, seconds_of_step=1.0,
                                        step_scaling=StepScaling(1.0, 0.1, 0.2, bounds))  # fmt: skip
    return with_invocation(
        msgspec.structs.replace(report, rehearsal=rehearsal),
        Invocation(("bash", "launch $1.sh"), ("--gpus", "8xH100-80G", "--host-memory", "2T")),
    )


def compared_report(folder: Path) -> Report:
    """A rehearsal whose activations have grown since the one that it is held against: on its page is all there is."""
    (folder / "before.json").write_text(render(rehearsed_report(), "json", "en"), encoding="utf-8")
    return compare_with_baseline(rehearsed_report(1.5), read_baseline(folder / "before.json"), 2.0)


def cured_report() -> Report:
    """A cure of two steps, one of them a pin, with an alternative and a change that was rejected."""
    diff = '--- a/ds_config.json\n+++ b/ds_config.json\n@@ -1 +1 @@\n-{"stage": 2}\n+{"stage": 3}\n'
    before = cured.TrialOutcome("NO-GO", ("gpu-oom-model-states",), "0", 90 << 30, 80 << 30, 40 << 30, 2.0)
    after = msgspec.structs.replace(before, verdict="GO", hazards=(), peak_reserved_bytes=60 << 30)
    title, why = Text("Use ZeRO-3", "使用 ZeRO-3"), Text("model states do not fit", "模型状态放不下")
    steps = (
        cured.CureStep("gpu-oom-model-states", title, why, True, ("ds_config.json",), diff),
        cured.CureStep("python-package-version-mismatch", title, why, False, (), "", ("deepspeed==0.14.4",)),
    )
    return Report(
        command="cure",
        verdict=Verdict.GO,
        cure=cured.Cure(
            needed=True, proven=True, before=before, after=after, patch=diff, patch_file="cure.patch", folder="/work",
            pins=("deepspeed==0.14.4",), variables={"OMP_NUM_THREADS": "1"}, command=("bash", "launch.sh"), steps=steps,
            tried=(cured.RejectedChange("gpu-oom-model-states", Text("Offload", "卸载"), Text("not enough", "不够")),),
            alternatives=(cured.Alternative(title, Text("Offload it", "改用卸载"), diff, after),),
            rehearsals=4, seconds=90.0,
        ),
    )  # fmt: skip


def solved_plan_report() -> Report:
    """The largest micro-batch that fits, searched for by ``plan --max micro-batch``."""
    return solved_report(solve("micro-batch", request(Path("model")), cast(Meter, FakeMeter()), lambda text: None))


def result_report() -> Report:
    """A life whose checkpoint was converted, and weights were lost on the way."""
    path = Path(__file__).parents[1] / "hazards" / "result-weights-lost" / "bad_not_converted.record.json"
    return rehearsal_report(msgspec.json.decode(path.read_bytes(), type=RehearsalRecord), "/work")


def roomy_report() -> Report:
    """The same on accelerators so large that their capacity is off the chart until it is asked for."""
    report = charted_report()
    assert report.rehearsal is not None
    ranks = tuple(
        msgspec.structs.replace(
            rank, devices=tuple(msgspec.structs.replace(one, total_bytes=1 << 40) for one in rank.devices)
        )
        for rank in report.rehearsal.ranks
    )
    return msgspec.structs.replace(report, rehearsal=msgspec.structs.replace(report.rehearsal, ranks=ranks))


@functools.cache
def _timeline(device: str) -> MemoryTimeline:
    timeline = Timeline()
    left = width = 1
    high = _moment(0)
    for number in range(100_000):
        high = max(high, _moment(number), key=lambda one: one.live)
        left -= 1
        if not left:
            timeline.add(high)
            left = width = timeline.width
            high = _moment(0)
    assert width > 1
    return timeline.as_record(device, high)


def _moment(number: int) -> Moment:
    activations = PEAK - (20 << 30) if number == 61_803 else number % 20_000 << 20
    held = tuple({"parameters": 20 << 30, "activations": activations}.get(name, 0) for name in CATEGORIES)
    phase = ("load", "forward", "backward", "step", "save")[number // 20_000]
    return Moment(sum(held), held, sum(held), phase, number // 50_000, 3, f"model.layers.{number % 28}.mlp",
                  "aten.mm.default", f"/usr/lib/python3/site-packages/model.py:{number % 28} forward")  # fmt: skip


def parted_report() -> Report:
    """A rehearsal whose ranks part: rank 0 in a branch of its own."""
    cases = Path(__file__).parents[1] / "hazards" / "ranks-part-at-collective"
    data = (cases / "bad_rehearsed_branch_on_rank.record.json").read_bytes()
    return rehearsal_report(msgspec.json.decode(data, type=RehearsalRecord))


def guarded_report() -> Report:
    """Four ranks guarded for 2,000 steps, a record each ten: rank 2's step 1,205 took 9 s, and it stood still there."""
    case = Path(__file__).parents[1] / "hazards" / "rank-late-at-collective" / "bad_data_loader.guard.json"
    run = msgspec.json.decode(case.read_bytes(), type=GuardedRun)
    for rank in run.ranks:
        template = rank.steps[0]
        rank.steps = [
            msgspec.structs.replace(
                template, step=last, steps=10, seconds=0.5, slowest=9.0 if (rank.rank, last) == (2, 1210) else 0.6,
                gpu_reserved=(40 + rank.rank + last // 500) << 30, host_bytes=(8 << 30) + (last << 20),
            )
            for last in range(10, 2010, 10)
        ]  # fmt: skip
        rank.stalls = [msgspec.structs.replace(one, step=1205) for one in rank.stalls] if rank.rank == 2 else []
    return guarded_run_report(run, "/home/user/finetune")


def died_report(folder: Path) -> Report:
    """Logs of four ranks with times: rank 2 ran out of memory, the others fell over because of it."""
    for rank in range(4):
        said, second = "torch.distributed.DistBackendError: NCCL communicator was aborted", 13 + rank
        if rank == 2:
            said, second = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", 3
        lines = ["step 1", "Traceback (most recent call last):", '  File "train.py", line 61, in <module>', said]
        stamped = (f"2024-05-01 10:00:{second:02} [rank{rank}]: {line}\n" for line in lines)
        (folder / f"rank{rank}.log").write_text("".join(stamped))
    return read_failure([str(folder)]).report()


def hostile_report() -> Report:
    """All that comes from outside is hostile, and one line of code has ten megabytes."""
    text = Text(HOSTILE, HOSTILE)
    span = Span(f"{HOSTILE}.py", 3, 1, f"{HOSTILE}{'x' * 10_000_000}", label=text)
    fix = Fix(text, diff=f"--- a\n+++ b\n-{HOSTILE}\n+{HOSTILE}")
    sources = (f"javascript:{HOSTILE}", f'https://example.org/"onclick="{HOSTILE}')
    finding = Finding(
        HOSTILE, Certainty.CERTAIN, Severity.ERROR, text, text, spans=(span,), module=HOSTILE, parameter=HOSTILE,
        fixes=(fix,), sources=sources,
    )  # fmt: skip
    report = charted_report()
    assert report.rehearsal is not None
    ranks = tuple(
        msgspec.structs.replace(
            rank,
            timelines=tuple(
                msgspec.structs.replace(one, modules=(HOSTILE,) * len(one.modules)) for one in rank.timelines
            ),
        )
        for rank in report.rehearsal.ranks
    )
    rehearsal = msgspec.structs.replace(report.rehearsal, ranks=ranks)
    return msgspec.structs.replace(
        report, verdict=Verdict.NO_GO, findings=(finding,), notes=(text,), rehearsal=rehearsal
    )
