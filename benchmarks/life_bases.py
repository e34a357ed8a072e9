"""Adapters used on the base that they were trained on, and on another: for real on the CPU, and what gonogo says.

    python benchmarks/life_bases.py [--really] [--only WORDS]

``--really`` trains, resumes, merges and loads, and writes to ``tests/life/bases.json`` which frozen weights differ
from those in training; without it the lives are rehearsed and compared with that.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "tests" / "life")]
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from lives import _run, _warm  # noqa: E402
from truth_cells import chosen_cells, compare  # noqa: E402

from bases import CELLS, TRUTH, BaseCell, write_bases  # noqa: E402  # isort: skip

_ROUNDING = 1 / 64
"""Of a value in bfloat16, half a unit in the last place twice; far below what another base has."""


def really(cell: BaseCell, folder: Path) -> dict[str, Any]:
    """Which frozen weights have other values than in training, and which are rounded."""
    write_bases(folder)
    stages = {"resume": cell.resume, "merge": cell.merge, "serve": cell.serve}
    commands = [("first", f"train {cell.words}")]
    commands += [("second", f"train {cell.words} {cell.resume}")] if cell.resume is not None else []
    commands += [(stage, f"use {words}") for stage, words in stages.items() if words and stage != "resume"]
    for stage, words in commands:
        error = _run(["on_base.py", *words.split()], folder, stage, 1)
        assert not error, error[-4000:]
    before, after = (json.loads((folder / f"told.{name}").read_text(encoding="utf-8")) for name in ("before", "after"))
    return compared(before, after)


def compared(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Weights of another value, those that are missing, and those of another dtype or quantization alone."""
    other, rounded = [], []
    for name, (dtype, values) in before.items():
        if name not in after:
            other.append(name)
            continue
        dtype_after, values_after = after[name]
        if "uint8" in (dtype, dtype_after) and dtype != dtype_after:
            rounded.append(name)
        elif values != values_after:
            size = max(map(abs, values), default=0.0)
            near = all(abs(a - b) <= _ROUNDING * size for a, b in zip(values, values_after, strict=True))
            (rounded if near else other).append(name)
    return {"other": sorted(other), "rounded": sorted(rounded)}


def main() -> None:
    """Run the cells, or compare."""
    for_real, cells, truth = chosen_cells(__doc__, CELLS, TRUTH)
    if for_real:
        _warm()
        for cell in cells:
            with tempfile.TemporaryDirectory() as name:
                truth[cell.name] = really(cell, Path(name))
            print(f"{cell.name}: {json.dumps(truth[cell.name])[:300]}", flush=True)
            TRUTH.write_text(json.dumps(truth, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return
    from bases import judged

    print(f"{compare(cells, truth, judged)} uses of an adapter are as they really are")


if __name__ == "__main__":
    main()
