"""Reports for the HTML page: one whose charts have all that they can show, one made of hostile text."""

from __future__ import annotations

import msgspec
from whole_runs import RUNS

from gonogo.evidence.rehearsal.record import CATEGORIES
from gonogo.finding import Certainty, Finding, Fix, Report, Severity, Span, Text, Verdict
from gonogo.finding.rehearsal import MemoryTimeline, ModuleMemory
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
        rank, devices=(msgspec.structs.replace(device, modules=modules),), timelines=(_timeline(device.device),)
    )
    ranks = (rank, msgspec.structs.replace(rank, rank=1))
    return msgspec.structs.replace(report, rehearsal=msgspec.structs.replace(report.rehearsal, ranks=ranks))


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
    return Moment(sum(held), held, sum(held), phase, number // 50_000, 3, f"model.layers.{number % 28}.mlp")


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
