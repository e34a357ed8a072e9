"""Adapters that are resumed, merged or served on a base: the one that they were trained on, or another one.

What differs was seen in real runs on the CPU (``benchmarks/life_bases.py --really``), and stands in ``bases.json``.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cells import CANNOT_TELL, GO, NO_GO, STAGES
from results import write_base
from safetensors.numpy import load_file, save_file

from gonogo.evidence.rehearsal.base_table import strip_peft_wrappers
from gonogo.finding import Report, Verdict
from gonogo.finding.lives.life_report import LifeReport
from gonogo.finding.lives.result_report import ResultReport
from gonogo.rehearse.answer import rehearse_and_report
from gonogo.rehearse.lives import StageCommands
from gonogo.rehearse.request import RehearsalRequest

TRUTH = Path(__file__).parent / "bases.json"
OTHER = "adapter-on-another-base"
_TIMEOUT = 1800.0


@dataclass(frozen=True)
class BaseCell:
    """Arguments of ``on_base.py train``, and of what uses the adapter: ``resume``, or else ``merge`` and ``serve``."""

    words: str = ""
    resume: str | None = None
    merge: str | None = None
    serve: str | None = None
    verdict: Verdict = GO
    hazards: frozenset[str] = frozenset()
    """Of :data:`OTHER` and the hazards of lost weights."""

    @property
    def name(self) -> str:
        """What it is called in the truth."""
        uses = {"resume": self.resume, "merge": self.merge, "serve": self.serve}
        return " | ".join([self.words, *(f"{stage} {words}" for stage, words in uses.items() if words is not None)])


_ON_OTHER = {"verdict": NO_GO, "hazards": frozenset({OTHER})}
CELLS = [
    # Another base
    BaseCell(merge="out result --base=base2", **_ON_OTHER),
    BaseCell(resume="--base=base2", **_ON_OTHER),
    BaseCell("--first=first", merge="out result --auto", **_ON_OTHER),
    BaseCell("--dora", merge="out result --base=stage1", **_ON_OTHER),
    BaseCell("--prompt", serve="out --base=base2 --apart", **_ON_OTHER),
    # The merged weights are written over the base, and the adapter is applied to them once more.
    BaseCell(merge="out base --auto", serve="out --auto --apart", **_ON_OTHER),
    # Layers that no file has are drawn anew: by which seed is not followed.
    BaseCell("--sequence", serve="out --sequence --seed=2 --apart", verdict=CANNOT_TELL, hazards=frozenset({OTHER})),
    BaseCell(
        "--resized --unsaved", merge="out result --resized --seed=2", verdict=CANNOT_TELL, hazards=frozenset({OTHER})
    ),
    # The same base
    BaseCell(merge="out result --auto"),
    BaseCell(merge="out result --base=copy"),
    BaseCell(merge="out result --base=shards"),
    BaseCell(resume=""),
    BaseCell("--base=stage1", merge="out result --auto"),
    BaseCell("--first=first", merge="out result --first=first"),
    BaseCell("--sequence --typed", merge="out result --sequence --typed --seed=2"),
    BaseCell("--resized", merge="out result --resized --seed=2"),
    BaseCell("--prompt", serve="out --apart"),
    # The same but for rounding, which is a note
    BaseCell("--bf16", merge="out result", hazards=frozenset({OTHER})),
    BaseCell(merge="out result --base=half", hazards=frozenset({OTHER})),
    BaseCell("--4bit", merge="out result", hazards=frozenset({OTHER})),
]


def write_bases(folder: Path) -> None:
    """``base`` and others beside it: ``base2`` has other weights, ``copy``, ``shards``, ``half`` the same.

    ``first`` is an adapter of ``base``, and ``stage1`` is ``base`` with it merged.
    """
    write_base(folder)
    base = load_file(folder / "base" / "model.safetensors")
    drawn = np.random.default_rng(7)
    update: dict[str, np.ndarray] = {}
    merged = dict(base)
    for name in [name for name in base if name.endswith(("q_proj.weight", "v_proj.weight"))]:
        layer = f"base_model.model.{name.removesuffix('.weight')}"
        down = drawn.normal(0, 0.1, (8, base[name].shape[1])).astype(np.float32)
        up = drawn.normal(0, 0.1, (base[name].shape[0], 8)).astype(np.float32)
        update |= {f"{layer}.lora_A.weight": down, f"{layer}.lora_B.weight": up}
        merged[name] = base[name] + up @ down
    other = {name: (value + drawn.normal(0, 0.02, value.shape)).astype(np.float32) for name, value in base.items()}
    for name, weights in (("base2", other), ("stage1", merged), ("copy", base), ("half", _halved(base))):
        (folder / name).mkdir()
        shutil.copy(folder / "base" / "config.json", folder / name)
        save_file(weights, folder / name / "model.safetensors", {"format": "pt"})
    _write_shards(folder / "shards", base, folder / "base" / "config.json")
    (folder / "first").mkdir()
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "base", "r": 8, "lora_alpha": 8,
        "target_modules": ["q_proj", "v_proj"], "inference_mode": True,
    }  # fmt: skip
    (folder / "first" / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(update, folder / "first" / "adapter_model.safetensors", {"format": "pt"})


def _halved(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: value.astype(np.float16) for name, value in weights.items()}


def _write_shards(folder: Path, weights: Mapping[str, np.ndarray], config: Path) -> None:
    folder.mkdir()
    shutil.copy(config, folder)
    where = {}
    for number in (1, 2):
        part = {name: value for name, value in weights.items() if (".1." in name) == (number == 2)}
        file = f"model-0000{number}-of-00002.safetensors"
        save_file(part, folder / file, {"format": "pt"})
        where |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def rehearse_cell(cell: BaseCell, folder: Path) -> Report:
    """What gonogo says of it, in an empty folder."""
    write_bases(folder)
    before = os.getcwd()
    os.chdir(folder)
    uses = {"merge": cell.merge, "serve": cell.serve}
    stages = STAGES if cell.resume is not None else ("train", "save", *(stage for stage, told in uses.items() if told))
    base = "" if "--base=" in cell.words else "--base=base "
    commands = {stage: f"python on_base.py use {told}" for stage, told in uses.items() if told}
    try:
        _, report = rehearse_and_report(
            RehearsalRequest(
                shlex.split(f"python on_base.py train {base}{cell.words}"), gpus="1xH100-80G", as_installed=True,
                timeout=_TIMEOUT, life=stages, stage_commands=StageCommands(**commands),
                resume_with=cell.resume or None,
            )
        )  # fmt: skip
    finally:
        os.chdir(before)
    return report


def judged(cell: BaseCell, truth: Mapping[str, Any] | None, folder: Path) -> tuple[list[str], str]:
    """What is wrong in the answer, one line each, and the answer in short."""
    report = rehearse_cell(cell, folder)
    hazards = {f.hazard for f in report.findings if f.hazard == OTHER or "weights" in f.hazard}
    wrong = [] if report.verdict is cell.verdict else [f"{report.verdict.name}, not {cell.verdict.name}"]
    if hazards != cell.hazards:
        wrong.append(f"hazards {sorted(hazards)}, not {sorted(cell.hazards)}")
    if truth is not None:
        wrong += _unlike(report, truth)
    if wrong:
        wrong += [f"skipped: {one.what.en}: {one.why.en}" for one in report.skipped]
    return wrong, f"{report.verdict.name} {', '.join(sorted({finding.hazard for finding in report.findings}))}".strip()


def _unlike(report: Report, truth: Mapping[str, Any]) -> Iterator[str]:
    part = report.rehearsal
    tables = [one for one in (part.life, part.result) if isinstance(one, LifeReport | ResultReport)] if part else []
    rows = [row for table in tables for row in getattr(table, "bases", ())]
    other = {strip_peft_wrappers(name) for row in rows if row.status not in ("same", "rounded") for name in row.names}
    if other != set(truth["other"]):
        yield f"other: {sorted(other)[:4]}, really {truth['other'][:4]}"
    rounded = any(row.status == "rounded" for row in rows)
    if rounded != bool(truth["rounded"]):
        yield f"rounded: {rounded}, really {truth['rounded'][:4]}"
