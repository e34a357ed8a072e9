"""`gonogo.GonogoCallback`: the guard as a callback of transformers' Trainer (also TRL, ms-swift, LLaMA-Factory)."""

from __future__ import annotations

import os
import time
from typing import Any


def _callback_class() -> Any:
    from transformers import TrainerCallback

    class GonogoCallback(TrainerCallback):  # type: ignore[misc]
        """Guards a training with transformers' Trainer: pass it in ``callbacks=[gonogo.GonogoCallback()]``.

        Does from inside what ``gonogo run`` does from outside, except for the check before the start: before the
        first step the ranks compare their facts and record where their tensors are; during training, memory, stalls,
        exceptions and NaN or Inf losses are written to ``folder``, from which ``gonogo run --report FOLDER`` makes
        the report. Under ``gonogo run`` it adds nothing.

        ``folder``: shared by all ranks; by default ``gonogo-runs/<date>`` in the Trainer's ``output_dir``.
        ``stall_seconds``: the shortest time without progress that counts as a stall. ``join_seconds``: how long the
        ranks wait for each other before the first step. ``nonfinite``: look for the first NaN or Inf, which waits for
        the GPU at every module. ``language``: ``"en"`` or ``"zh"``, for the notes added to exceptions; by default
        that of the locale. ``trackers``: send the report to W&B, MLflow, TensorBoard or SwanLab if the training
        reports there.
        """

        def __init__(
            self,
            folder: str | os.PathLike[str] | None = None,
            *,
            stall_seconds: float = 60.0,
            join_seconds: float = 60.0,
            nonfinite: bool = False,
            language: str | None = None,
            trackers: bool = True,
        ) -> None:
            from gonogo.finding.language import choose_language
            from gonogo.guard.injection import GuardOptions

            self.folder = folder
            self.options = GuardOptions(
                stall_seconds=stall_seconds,
                join_seconds=join_seconds,
                nonfinite=nonfinite,
                language=choose_language(language, os.environ),
                trackers=trackers,
            )
            if folder is not None:
                self._start_in_folder(str(folder))

        def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
            """Start the guard unless it already runs."""
            if self.folder is None:
                self.folder = os.path.join(args.output_dir, "gonogo-runs", _shared_run_name())
            self._start_in_folder(str(self.folder))

        def _start_in_folder(self, folder: str) -> None:
            from gonogo.guard.common.faults import harmless

            harmless("startup")(_start_guard)(folder, self.options)

    GonogoCallback.__module__, GonogoCallback.__qualname__ = __name__, "GonogoCallback"
    return GonogoCallback


def _start_guard(folder: str, options: Any) -> None:
    from gonogo.guard.rank.arming import hook_imports
    from gonogo.guard.rank.worker import current, prepare_guard

    if current() is not None:
        return
    prepare_guard(os.path.abspath(folder), is_rank=True, options=options)
    hook_imports()


def _shared_run_name() -> str:
    """A run name that all ranks agree on: from the process group's store if there is one, else the start time."""
    import torch

    name = time.strftime("%Y%m%d-%H%M%S")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        store = torch.distributed.distributed_c10d._get_default_store()
        return store.compare_set("gonogo/name of run", "", name).decode()
    return name


GonogoCallback = _callback_class()
