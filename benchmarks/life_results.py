"""Checkpoints that real libraries convert, merge and load, for real on the CPU, and what gonogo says of them.

    python benchmarks/life_results.py [--really] [--only WORDS]

``--really`` trains, kills, converts, merges and loads with gloo, and writes to ``tests/life/results.json`` which
trained weights the loaded model lacks; without it the lives are rehearsed and compared with that.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "tests" / "life")]
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from lives import _error_of, _run, _warm  # noqa: E402
from results import CELLS, TRUTH, ResultCell, write_base  # noqa: E402
from truth_cells import chosen_cells, compare  # noqa: E402

_NEAR = 2e-3
"""Of sums in bfloat16."""


def really(cell: ResultCell, folder: Path) -> dict[str, Any]:
    """Which trained weights the loaded model lacks, and which names it did not find; or what was raised."""
    write_base(folder)
    words = cell.command.split()
    error = _run([*words[words.index("--nproc_per_node") + 2 :], "--use_cpu"], folder, "first", 2)
    assert not error, error[-4000:]
    told = json.loads((folder / "told.0").read_text(encoding="utf-8").splitlines()[0])["parameters"]
    stages = {"convert": cell.convert, "merge": cell.merge, "serve": f"served.py {cell.serve} served.json"}
    for stage, command in stages.items():
        if command is not None and (error := _run(command.split(), folder, stage, 1)):
            return {"stage": stage, "error": _error_of(error)}
    served = json.loads((folder / "served.json").read_text(encoding="utf-8"))
    (folder / "served.json").unlink()
    error = _run(["served.py", "base", "served.json"], folder, "base", 1)
    assert not error, error[-4000:]
    base = json.loads((folder / "served.json").read_text(encoding="utf-8"))["parameters"]
    return {"lost": sorted(lost(told, served["parameters"], base)), "missing": served["missing"]}


def lost(told: dict[str, float], served: dict[str, float], base: dict[str, float]) -> list[str]:
    """Trained weights that the loaded model has not: of LoRA's, those whose layer is as it was in the base."""
    found = []
    for name, value in told.items():
        own = name.removeprefix("base_model.model.").replace(".modules_to_save.default.", ".")
        if ".base_layer." in own or ".original_module." in own:
            continue
        if ".lora_" in own:
            own = f"{own.partition('.lora_')[0]}.weight"
            if abs(served[own] - base[own]) <= 1e-6 * abs(base[own]):
                found.append(name)
        elif own not in served or abs(served[own] - value) > _NEAR * max(abs(value), 1e-3):
            found.append(name)
    return found


def main() -> None:
    """Run the cells, or compare."""
    for_real, cells, truth = chosen_cells(__doc__, CELLS, TRUTH)
    if for_real:
        _warm()
        for cell in cells:
            if not cell.really:
                continue
            with tempfile.TemporaryDirectory() as name:
                truth[cell.name] = really(cell, Path(name))
            print(f"{cell.name}: {json.dumps(truth[cell.name])[:400]}", flush=True)
            TRUTH.write_text(json.dumps(truth, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return
    from result_comparison import judged

    print(f"{compare(cells, truth, judged)} results are as they really are")


if __name__ == "__main__":
    main()
