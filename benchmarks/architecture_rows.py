"""The rows of the architecture table: one JSON object a line."""

from __future__ import annotations

import fcntl
import json
import os
import re
from importlib import metadata
from pathlib import Path
from typing import Any

from architecture_sets import ACCELERATOR

ROWS = Path(os.environ.get("GONOGO_ARCHITECTURE_ROWS") or Path(__file__).resolve().with_name("architectures.jsonl"))
_STACK = ("torch", "transformers", "deepspeed", "accelerate")


def versions() -> dict[str, str]:
    """The versions that a row holds for."""
    return {name: metadata.version(name) for name in _STACK}


def _key(row: dict[str, Any]) -> tuple[str, str, str, str]:
    return row["set"], row["name"], row["class"], row["strategy"]


class Rows:
    """All rows, the last one of each case; added ones are written at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.by_case: dict[tuple[str, str, str, str], dict[str, Any]] = {}

    @classmethod
    def read(cls, path: Path) -> Rows:
        """The rows of a file, none where there is no file."""
        rows = cls(path)
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                rows.by_case[_key(row)] = row
        return rows

    def has(self, case: Any, here: dict[str, str], again: set[str]) -> bool:
        """Whether the case is there for these versions, with none of the verdicts that are to be had again."""
        row = self.by_case.get((case.set, case.name, case.model_class, case.strategy))
        return row is not None and row["versions"] == here and row["verdict"] not in again

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row, in the place of an older one of the same case."""
        with open(self.path.with_suffix(".lock"), "w") as lock:  # another run may add to the same file
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.by_case = Rows.read(self.path).by_case
            self.by_case[_key(row)] = row
            partial = self.path.with_suffix(".partial")
            lines = [json.dumps(row, ensure_ascii=False, sort_keys=True) for _, row in sorted(self.by_case.items())]
            partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
            os.replace(partial, self.path)


def _without_folders(text: str) -> str:
    """A text without the folders of the machine that it was written on."""
    return re.sub(r"/\S*?/(?=site-packages/|benchmarks/|src/gonogo/)", "", text).replace("site-packages/", "")


def row_of(case: Any, folder: Path, ended: dict[str, Any], here: dict[str, str]) -> dict[str, Any]:
    """What a rehearsal came to: the verdict is that of ``gonogo rehearse``, the seconds are processor time."""
    import msgspec

    from gonogo.evidence.environment.hardware import find_accelerator
    from gonogo.evidence.rehearsal.record import AcceleratorFacts, RankRecord, RehearsalRecord
    from gonogo.rehearse.answer import rehearsal_report

    path = folder / "record" / "record.json"
    if path.exists():
        rank = msgspec.json.decode(path.read_bytes(), type=RankRecord)
    else:
        rank = RankRecord(0, 0, "cuda:0", "killed", events=[f"the worker wrote no record: {ended}"])
    accelerator = find_accelerator(ACCELERATOR)
    facts = AcceleratorFacts(
        accelerator.name, accelerator.device_type, accelerator.total_bytes, accelerator.allowance_bytes
    )
    seconds = float(ended.get("seconds", rank.seconds))
    record = RehearsalRecord([], str(folder), case.world, case.world // 8, 8, facts, rank.steps, None, seconds, [rank])
    why: list[str] = []
    verdict = "CANNOT-TELL"
    if rank.user_error is not None:
        why = [rank.user_error[0].replace(str(folder) + "/", "")]
    else:
        report = rehearsal_report(record, str(folder))
        verdict = str(report.verdict.value)
        why = [finding.hazard for finding in report.findings if finding.severity.value == "error"]
        if verdict != "GO":
            why += [f"{s.what.en}: {s.why.en}" for s in report.skipped if s.what.en.startswith("rank 0")]
    device = rank.devices[0] if rank.devices else None
    places = sorted({entry.what.partition(":")[0] for entry in rank.assumptions})
    return {
        "set": case.set,
        "name": case.name,
        "class": case.model_class,
        "model_type": case.config.get("model_type"),
        "strategy": case.strategy,
        "gpus": f"{case.world}x{ACCELERATOR}",
        "seq_len": case.seq_len,
        "steps": rank.steps,
        "verdict": verdict,
        "outcome": rank.outcome,
        "parameters": rank.parameter_count,
        "peak_bytes": device.peak_reserved_bytes if device else 0,
        "host_peak_bytes": rank.host.peak_bytes if rank.host else 0,
        "operators": rank.operators,
        "seconds": round(seconds, 1),
        "assumptions": len(rank.assumptions),
        "assumed": places,
        "text_only": any(what.startswith("the batch has no ") for what in places),
        "error": f"{rank.failure.type}: {rank.failure.message.strip()[:600]}" if rank.failure else "",
        "why": [_without_folders(text)[:600] for text in why],
        "versions": here,
    }
