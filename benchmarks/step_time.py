"""Step times that others have measured on real GPUs and published, held against what gonogo predicts.

    python benchmarks/step_time.py            # each row, and the errors of the rows that nothing was fitted to
    python benchmarks/step_time.py --fit      # the constants that fit the other half best
    python benchmarks/step_time.py --write    # the tables in docs/accuracy.md

The work of a step (kernels with their FLOPs and bytes, collectives with their groups) is that of the rehearsals of
``benchmarks/published/run.py``, kept in ``published/work.jsonl``; the published seconds stand in the rows' files. Half
of the rows that were there when the constants were fitted, taken alternately in the order of their names, was for
fitting (``fitted`` in ``work.jsonl``); the figure is that of all others. A row that is added is never fitted to. Pairs
of rows that have all but their strategy in common, and differ by more than 10 %, tell whether the order is right.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "published"))
sys.path.insert(0, str(HERE))

import msgspec  # noqa: E402
import run  # noqa: E402  beside this file

from gonogo.evidence.environment.hardware import PeakSpeed, find_accelerator  # noqa: E402
from gonogo.evidence.rehearsal.work import PhaseWork  # noqa: E402
from gonogo.trials.plan import rehearsed_step  # noqa: E402
from gonogo.virtual.tracing import operator_time  # noqa: E402
from gonogo.virtual.tracing.operator_time import operator_seconds  # noqa: E402
from gonogo.virtual.tracing.work import LIBRARY  # noqa: E402

_PAGES = {"en": "accuracy.md", "zh": "accuracy.zh-CN.md"}
_APART = 0.1
_SCALES = (0.7, 0.8, 0.9, 0.95, 1.05, 1.1, 1.2, 1.4)
_FITTED = (
    "HOOKED_OPERATOR_SECONDS",
    "LIBRARY_CALL_SECONDS",
    "CALL_SECONDS",
    "FETCH_SECONDS",
    "COLLECTIVE_SECONDS",
    "EXPOSED_COMMUNICATION_SHARE",
    "OVERLAP_EXPONENT",
)


class Row(NamedTuple):
    """A row with published seconds, and the work of its step."""

    name: str
    published: float
    parts: list[PhaseWork]
    speed: PeakSpeed
    pipeline: tuple[int, int, int]
    gathers: bool
    fitted: bool
    network_bytes: float
    """Between nodes, as published (``network_gbps``); else the model's own default."""

    @property
    def family(self) -> str:
        """What rows that differ in their strategy alone have in common: model, number of micro-batches, GPU."""
        found = re.match(r"SimuMax.*: (llama3_\w+?b|deepseekv\d).*?(mbc\d+)", self.name)
        length = re.search(r"seq\d+", self.name)
        return f"{found[1]} {found[2]} {length[0] if length else ''}" if found else ""

    def predicted(self) -> float:
        """Seconds, by the constants as they are now."""
        parts = [_timed(part, self.speed) for part in self.parts]
        return rehearsed_step.phase_seconds(
            parts, self.speed, self.pipeline, is_zero3=self.gathers, network_bytes=self.network_bytes
        )

    @property
    def error(self) -> float:
        """Percent; above zero where gonogo says more."""
        return 100 * (self.predicted() / self.published - 1)


def _timed(part: PhaseWork, speed: PeakSpeed) -> PhaseWork:
    """The part with its kernels' seconds by the constants as they are now: what a rehearsal would have counted."""
    longer = shorter = 0.0
    short = operators = library = 0
    for kind, flops, moved, count in part.kernels:
        seconds = operator_seconds(flops, moved, speed, kind)
        operators += count
        library += count if kind.startswith(LIBRARY) else 0
        if seconds > operator_time.LAUNCH_SECONDS:
            longer += seconds * count
        else:
            shorter += seconds * count
            short += count
    return msgspec.structs.replace(
        part,
        long_seconds=longer,
        short_seconds=shorter,
        short_operators=short,
        operators=operators,
        library_calls=library,
    )


def rows() -> list[Row]:
    """All that have both, by name."""
    published = {run.title(row): row for row in run.rows() if "published_seconds" in row}
    found = []
    for line in run.WORK.read_text(encoding="utf-8").splitlines():
        kept = json.loads(line)
        row = published.get(kept["row"])
        if row is None:
            continue
        speed = find_accelerator(row["gpus"].partition("x")[2]).speed
        assert speed is not None
        parts = msgspec.convert(kept["work"], list[PhaseWork])
        found.append(
            Row(
                kept["row"],
                row["published_seconds"],
                parts,
                speed,
                tuple(kept["pipeline"]),
                kept["stage"] == 3,
                kept.get("fitted", False),
                row.get("network_gbps", rehearsed_step.NETWORK_BYTES_PER_SECOND * 8 / 1e9) * 1e9 / 8,
            )
        )
    return sorted(found, key=lambda row: row.name)


def pairs(found: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """Rows that have all but the strategy in common and whose published times differ."""
    for one, other in itertools.combinations(found, 2):
        if one.family and one.family == other.family:
            low, high = sorted((one.published, other.published))
            if high > low * (1 + _APART):
                yield one, other


def ordered(found: Sequence[Row]) -> tuple[int, int]:
    """How many pairs are in the published order, and of how many."""
    right = [(one.published < other.published) == (one.predicted() < other.predicted()) for one, other in pairs(found)]
    return sum(right), len(right)


def halves(found: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """For fitting, and for judging."""
    return [row for row in found if row.fitted], [row for row in found if not row.fitted]


def by_source(found: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """SimuMax's, whose own table of shapes tells what products reach on a B200, and those of others."""
    return [row for row in found if row.name.startswith("SimuMax")], [
        row for row in found if not row.name.startswith("SimuMax")
    ]


def median(found: Sequence[Row]) -> float:
    """Of the errors without their signs."""
    return statistics.median(abs(row.error) for row in found)


def fit(found: Sequence[Row]) -> None:
    """Move each constant while the errors of these rows get smaller, and print them."""
    names: list[tuple[Any, str]] = [(rehearsed_step, name) for name in _FITTED]

    def loss() -> float:
        return statistics.fmean(min(abs(row.error), 60) for row in found)

    best = loss()
    for _ in range(6):
        for owner, name in names:
            value = getattr(owner, name)
            for scale in _SCALES:
                setattr(owner, name, value * scale)
                if (now := loss()) < best - 1e-6:
                    best, kept = now, value * scale
                    value = kept
            setattr(owner, name, value)
    for owner, name in names:
        print(f"{name} = {getattr(owner, name):.3g}")
    print(f"mean error of the rows fitted to: {best:.1f} %")


def table(found: Sequence[Row], language: str) -> str:
    """Errors of the half that nothing was fitted to, and each row."""
    _, judged = halves(found)
    names = {row.name for row in judged}
    of_shapes, others = by_source(judged)
    right, of = ordered(found)
    words = {
        "en": ("rows left out of the fit", "median \\|error\\|", "rows fitted to", "pairs in the published order",
               "row", "published, s", "predicted, s", "error", "fitted to", "yes", "",
               "of them SimuMax's, on B200", "of them others'"),
        "zh": ("未参与拟合的行", "误差绝对值的中位数", "参与拟合的行", "与公布次序一致的配对",
               "配方", "公布值（秒）", "预测值（秒）", "误差", "参与拟合", "是", "",
               "其中 SimuMax（B200）", "其中其他来源"),
    }[language]  # fmt: skip
    head = [
        f"| {words[0]} | {words[1]} | {words[11]} | {words[12]} | {words[2]} | {words[1]} | {words[3]} |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        f"| {len(judged)} | {median(judged):.1f} % | {len(of_shapes)}: {median(of_shapes):.1f} % "
        f"| {len(others)}: {median(others):.1f} % | {len(found) - len(judged)} | {median(halves(found)[0]):.1f} % "
        f"| {right} / {of} |",
    ]  # fmt: skip
    body = [f"| {words[4]} | {words[5]} | {words[6]} | {words[7]} | {words[8]} |", "| --- | ---: | ---: | ---: | --- |"]
    body += [
        f"| {row.name} | {row.published:.3f} | {row.predicted():.3f} | {row.error:+.1f} % "
        f"| {words[10] if row.name in names else words[9]} |"
        for row in found
    ]
    return "\n".join([*head, "", *body])


def write(found: Sequence[Row]) -> None:
    """Put the tables into the documents."""
    begin, end = "<!-- benchmarks/step_time.py --write: time -->", "<!-- end of time -->"
    for language, name in _PAGES.items():
        path = HERE.parent / "docs" / name
        before, _, rest = path.read_text(encoding="utf-8").partition(begin)
        path.write_text(
            f"{before}{begin}\n\n{table(found, language)}\n\n{end}{rest.partition(end)[2]}", encoding="utf-8"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    found = rows()
    if asked.fit:
        fit(halves(found)[0])
    for row in found:
        print(f"{row.name}: published {row.published:.3f} s, predicted {row.predicted():.3f} ({row.error:+.1f} %)")
    _, judged = halves(found)
    right, of = ordered(found)
    print(f"rows left out of the fit: {len(judged)}, median error {median(judged):.1f} %; pairs in order {right}/{of}")
    for name, of_source in zip(("SimuMax's", "others'"), by_source(judged), strict=True):
        print(f"of them {name}: {len(of_source)}, median error {median(of_source):.1f} %")
    if asked.write:
        write(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
