"""Finds the trackers that a training reports to, in the modules it has imported; imports none and starts no run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

_MAX_TAG_LENGTH = 450
"""The longest tag value that every MLflow server accepts, in characters."""
writers: dict[str, type] = {}
"""TensorBoard's log folders that the program writes to, with the writer's class; filled by a hook of the writers."""


class TrackerUpload(msgspec.Struct, frozen=True):
    """What is sent to a tracker. No verdict except in the page: how the command ends is not known yet."""

    findings: list[str]
    """Each as ``error[hazard]: title``."""
    page: Path
    markdown: str
    step: int

    @property
    def lines(self) -> str:
        """The findings, one per line."""
        return "\n".join(self.findings)


class Tracker(msgspec.Struct, frozen=True):
    """One run of one tracker: ``key`` identifies it, ``where`` says where in it the report is shown."""

    name: str
    key: str
    where: str
    upload: Callable[[TrackerUpload], None]


def find_trackers() -> list[Tracker]:
    """The open runs of all trackers. Call it in the training's thread: MLflow's runs are per thread."""
    each = (_detect_wandb(), _detect_mlflow(), _detect_tensorboard(), _detect_swanlab())
    return [tracker for tracker in each if tracker is not None]


def _detect_wandb() -> Tracker | None:
    wandb: Any = sys.modules.get("wandb")
    run = getattr(wandb, "run", None)
    if run is None or getattr(run, "disabled", False):
        return None

    def upload_to_run(handover: TrackerUpload) -> None:
        run.log({"gonogo/report": wandb.Html(handover.page.read_text(encoding="utf-8"), inject=False)})
        run.summary.update({"gonogo/findings": handover.lines})

    return Tracker("W&B", f"wandb {run.id}", "gonogo/report", upload_to_run)


def _detect_mlflow() -> Tracker | None:
    mlflow: Any = sys.modules.get("mlflow")
    run = mlflow.active_run() if hasattr(mlflow, "active_run") else None
    if run is None:
        return None
    name, address = run.info.run_id, mlflow.get_tracking_uri()

    def upload_to_run(handover: TrackerUpload) -> None:
        client = mlflow.MlflowClient(tracking_uri=address)  # a client for this run, which may have ended by then
        client.log_artifact(name, str(handover.page), "gonogo")
        client.set_tag(name, "gonogo.findings", handover.lines[:_MAX_TAG_LENGTH])

    return Tracker("MLflow", f"mlflow {name}", "gonogo/report.html", upload_to_run)


def _detect_tensorboard() -> Tracker | None:
    if not writers:
        return None
    outer = [one for one in writers if not any(one.startswith(f"{other}{os.sep}") for other in writers)]
    folder = outer[-1]
    writer: Any = writers[folder]

    def upload_to_run(handover: TrackerUpload) -> None:
        beside = writer(folder)
        beside.add_text("gonogo/report", handover.markdown, handover.step)
        beside.close()
        if "://" not in folder:
            Path(folder, "gonogo-report.html").write_bytes(handover.page.read_bytes())

    return Tracker("TensorBoard", f"tensorboard {folder}", "gonogo/report", upload_to_run)


def _detect_swanlab() -> Tracker | None:
    swanlab: Any = sys.modules.get("swanlab")
    run = swanlab.get_run() if hasattr(swanlab, "has_run") and swanlab.has_run() else None
    if run is None:
        return None

    def upload_to_run(handover: TrackerUpload) -> None:
        # From the run, not the module, whose lock may be held while the program closes it.
        run.log({"gonogo/report": swanlab.Html(handover.page.read_text(encoding="utf-8"))})
        run.log({"gonogo/findings": swanlab.Text("\n".join(handover.findings) or "-")})

    return Tracker("SwanLab", f"swanlab {id(run)}", "gonogo/report", upload_to_run)
