"""Sends the report to trackers: once per tracker run, before it closes or when the rank ends.

Another process makes the report, so that nothing is imported into the training.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gonogo.finding import translated
from gonogo.guard.common.faults import harmless
from gonogo.guard.injection import FOLDER
from gonogo.guard.trackers.detection import Tracker, TrackerUpload, find_trackers, writers
from gonogo.guard.trackers.files import MARKDOWN, PAGE, SUMMARY, Summary

if TYPE_CHECKING:
    from gonogo.guard.common.state import RankState

_MAX_TRACKER_SEARCH_STEPS = 10
"""Number of first steps at which trackers are looked for: a training that reports starts before its first step."""
_UPLOAD_TIMEOUT_SECONDS = 120.0
_GRACE_SECONDS = 5.0
"""Seconds to wait for the other ranks' ends."""
_REPORT_SENT = translated("gonogo: findings so far: {count}; the report is also in {name} ({where})")

_REPORT_NOT_SENT = translated("gonogo: could not send the report to {name} ({why}); the training is not affected")


class TrackerUploader:
    """The trackers that one rank has found, and those already served. ``on_finish`` records the rank's end."""

    def __init__(self, state: RankState, on_finish: Callable[[], None]) -> None:
        self._state = state
        self._finish = on_finish
        self._found: dict[str, Tracker] = {}
        self._handed: set[str] = set()

    @harmless("trackers")
    def find_new_trackers(self) -> None:
        """Look for trackers, in the training's thread; only looks into ``sys.modules``."""
        state = self._state
        if not state.options.trackers or state.step > _MAX_TRACKER_SEARCH_STEPS or not state.reports_for_all:
            return
        _register_trainer_writer(state.trainer() if state.trainer is not None else None)
        for tracker in find_trackers():
            if not self._found:
                atexit.register(self.upload_report)  # registered after the tracker's own handler, so it runs first
            self._found.setdefault(tracker.key, tracker)

    @harmless("trackers")
    def upload_report(self, key: str = "") -> None:
        """Send the report to every tracker, or to the one that is about to close (``wandb`` of ``wandb 4f2a``)."""
        state = self._state
        if state.writer is None or state.writer.broken:
            return
        self.find_new_trackers()
        due = [one for name, one in self._found.items() if name.startswith(key) and name not in self._handed]
        self._handed |= {one.key for one in due}
        if not due:
            return
        if not key or getattr(sys, "last_value", None) is not None:  # an exception has ended the program
            self._finish()
        state.writer.flush()
        import tempfile

        with tempfile.TemporaryDirectory(prefix="gonogo-") as folder:
            handed = _write_report(state, state.writer.folder, folder, 0.0 if key else _GRACE_SECONDS)
            for tracker in due:
                _send_report(tracker, handed, state.options.language)


def _send_report(tracker: Tracker, handover: TrackerUpload, language: str) -> None:
    try:
        tracker.upload(handover)
        text = _REPORT_SENT.format(count=len(handover.findings), name=tracker.name, where=tracker.where)
    except Exception as error:  # a server that can't be reached, an unknown version of its client
        text = _REPORT_NOT_SENT.format(name=tracker.name, why=f"{type(error).__name__}: {error}"[:300])
    print(text.in_language(language), file=sys.stderr, flush=True)


def _write_report(state: RankState, records: str, folder: str, seconds: float) -> TrackerUpload:
    """Write the report with gonogo's own Python. Raises OSError, CalledProcessError, TimeoutExpired."""
    import subprocess

    variables = {name: value for name, value in os.environ.items() if name not in (FOLDER, "PYTHONHOME")}
    variables["PYTHONPATH"] = str(Path(__file__).resolve().parents[3])  # it needs nothing from the training's path
    words = ["-m", "gonogo.guard.trackers.report_files", records, folder, state.options.language, str(seconds)]
    subprocess.run(
        [state.options.python or sys.executable, *words],
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=_UPLOAD_TIMEOUT_SECONDS,
        check=True,
    )
    summary = msgspec.json.decode(Path(folder, SUMMARY).read_bytes(), type=Summary)
    markdown = Path(folder, MARKDOWN).read_text(encoding="utf-8")
    return TrackerUpload(summary.findings, Path(folder, PAGE), markdown, state.step)


def _register_trainer_writer(trainer: Any) -> None:
    """Register the TensorBoard writer of transformers' Trainer, which may have been created before the guard."""
    for callback in getattr(getattr(trainer, "callback_handler", None), "callbacks", ()):
        writer = getattr(callback, "tb_writer", None)
        if writer is not None and getattr(writer, "log_dir", None):
            writers.setdefault(str(writer.log_dir), type(writer))
