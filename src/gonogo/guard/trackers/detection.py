"""The trackers that a training reports to, found in what it has imported: none is imported, and no run is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

_MAX_TAG_LENGTH = 450
"""Characters that every MLflow server takes."""
writers: dict[str, type] = {}
"""TensorBoard's folders that the program writes into, and what writes there; see the hook of its writers."""


class TrackerUpload(msgspec.Struct, frozen=True):
    """What is handed over. No verdict but the page's own: how the command ends is not known yet."""

    findings: list[str]
    """Each as ``error[hazard]: title``."""
    page: Path
    markdown: str
    step: int

    @property
    def lines(self) -> str:
        """The findings, one a line."""
        return "\n".join(self.findings)


class Tracker(msgspec.Struct, frozen=True):
    """One run of one tracker: ``key`` tells it from others, ``where`` says where the report is seen in it."""

    name: str
    key: str
    where: str
    hand: Callable[[TrackerUpload], None]


def found() -> list[Tracker]:
    """The trackers' runs that are open now. To be asked in the thread that trains: MLflow's are by thread."""
    each = (_detect_wandb(), _detect_mlflow(), _detect_tensorboard(), _detect_swanlab())
    return [tracker for tracker in each if tracker is not None]


def _detect_wandb() -> Tracker | None:
    wandb: Any = sys.modules.get("wandb")
    run = getattr(wandb, "run", None)
    if run is None or getattr(run, "disabled", False):
        return None

    def hand(handover: TrackerUpload) -> None:
        run.log({"gonogo/report": wandb.Html(handover.page.read_text(encoding="utf-8"), inject=False)})
        run.summary.update({"gonogo/findings": handover.lines})

    return Tracker("W&B", f"wandb {run.id}", "gonogo/report", hand)


def _detect_mlflow() -> Tracker | None:
    mlflow: Any = sys.modules.get("mlflow")
    run = mlflow.active_run() if hasattr(mlflow, "active_run") else None
    if run is None:
        return None
    name, address = run.info.run_id, mlflow.get_tracking_uri()

    def hand(handover: TrackerUpload) -> None:
        client = mlflow.MlflowClient(tracking_uri=address)  # of a run that may have ended by then
        client.log_artifact(name, str(handover.page), "gonogo")
        client.set_tag(name, "gonogo.findings", handover.lines[:_MAX_TAG_LENGTH])

    return Tracker("MLflow", f"mlflow {name}", "gonogo/report.html", hand)


def _detect_tensorboard() -> Tracker | None:
    if not writers:
        return None
    outer = [one for one in writers if not any(one.startswith(f"{other}{os.sep}") for other in writers)]
    folder = outer[-1]
    writer: Any = writers[folder]

    def hand(handover: TrackerUpload) -> None:
        beside = writer(folder)
        beside.add_text("gonogo/report", handover.markdown, handover.step)
        beside.close()
        if "://" not in folder:
            Path(folder, "gonogo-report.html").write_bytes(handover.page.read_bytes())

    return Tracker("TensorBoard", f"tensorboard {folder}", "gonogo/report", hand)


def _detect_swanlab() -> Tracker | None:
    swanlab: Any = sys.modules.get("swanlab")
    run = swanlab.get_run() if hasattr(swanlab, "has_run") and swanlab.has_run() else None
    if run is None:
        return None

    def hand(handover: TrackerUpload) -> None:
        # Of the run, and not of the module, whose lock may be held: the program may be about to close it.
        run.log({"gonogo/report": swanlab.Html(handover.page.read_text(encoding="utf-8"))})
        run.log({"gonogo/findings": swanlab.Text("\n".join(handover.findings) or "-")})

    return Tracker("SwanLab", f"swanlab {id(run)}", "gonogo/report", hand)
