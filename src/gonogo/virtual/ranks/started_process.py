"""A process that a rehearsed program has started: it finds the accelerators, packages, files and network that it has.

Its tensors are real ones of the CPU: what it computes there is computed, and what it asks an accelerator to compute was
not rehearsed, which is noted.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from typing import Any

from gonogo.evidence.rehearsal.record import Assumption, AssumptionKind
from gonogo.finding import Text
from gonogo.virtual.downloads import tiktoken_files, torchvision_datasets
from gonogo.virtual.lookups import probe_reporting
from gonogo.virtual.patching.after_import import after_import, import_within
from gonogo.virtual.protocol.plan import WorkerPlan
from gonogo.virtual.ranks import newer_python
from gonogo.virtual.ranks.importing import hidden_accelerators
from gonogo.virtual.sandbox import addresses, file_copies, hub, metrics, network, prepared, started_processes, trackers
from gonogo.virtual.sandbox.started_processes import StartedProcesses
from gonogo.virtual.stack import OURS

_STOOD_IN = frozenset(
    {"apex", "bitsandbytes", "deepspeed", "flash_attn", "torchaudio", "torchvision", "transformer_engine", "triton"}
    | {"xformers"}
)
"""Packages with stand-ins, which are installed when torch is imported."""
_attached: set[str] = set()


class _TorchFirst:
    """Imports torch where a program imports such a package before it, as they do themselves."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Find nothing."""
        if name in _STOOD_IN and "torch" not in sys.modules:
            with contextlib.suppress(ImportError):
                importlib.import_module("torch")


def attach(folder: str) -> None:
    """Permanently make this process one of those that the program has started; ``folder``: that of its rank."""
    if folder in _attached:
        return
    _attached.add(folder)
    shared = StartedProcesses(folder)
    plan = shared.plan()
    assume = functools.partial(_share_assumption, shared)
    newer_python.install(plan.required_python, assume)
    network.install()
    trackers.install()
    hub.install(lambda note: None)
    prepared.install(plan.prepared, assume, shared.record_missing_input, functools.partial(_generate_weights, plan))
    addresses.install(plan.prepared, assume, shared.record_missing_input)
    metrics.install(assume)
    torchvision_datasets.install(assume)
    tiktoken_files.install(assume)
    file_copies.install()
    probe_reporting.install()
    started_processes.install(folder)
    sys.meta_path.insert(0, _TorchFirst)
    import_within("torch", hidden_accelerators)
    after_import("torch", functools.partial(_show_accelerators, shared, plan, assume))


def _share_assumption(shared: StartedProcesses, assumption: Text, kind: AssumptionKind = "") -> None:
    shared.record_assumption(Assumption(assumption.en, _innermost_place(), 1, assumption.zh, kind))


def _innermost_place(*packages: str) -> str:
    """``file:line`` of the innermost frame that is neither gonogo's nor in one of the folders."""
    skipped = (OURS, "<frozen", *packages)
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(skipped):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _generate_weights(plan: WorkerPlan, name: str, folder: str, file: str) -> str:
    from gonogo.virtual.weights import opened_files
    from gonogo.virtual.weights.generated_weights import GeneratedWeights

    in_place = plan.confinement == "namespaces"
    made = GeneratedWeights(plan.scratch, in_place, lambda note: None, frozenset(plan.written_folders))
    return opened_files.generate_if_weights_file(made, name, folder, file)


def _show_accelerators(shared: StartedProcesses, plan: WorkerPlan, assume: Any, torch: Any) -> None:
    """Show the program's accelerators and compiled packages; using an accelerator is noted, and fails."""
    from gonogo.virtual.ranks.environment_setup import show_accelerators

    show_accelerators(plan, assume)
    folder = os.path.dirname(torch.__file__)

    def wrap_noting_accelerator_use(function: Any) -> Any:
        @functools.wraps(function)
        def note_use_and_call(*args: Any, **kwargs: Any) -> Any:
            shared.record_accelerator_use(_innermost_place(folder))
            return function(*args, **kwargs)

        return note_use_and_call

    for kind in {"cuda", plan.accelerator.device_type}:
        api: Any = getattr(torch, kind, None)
        if hasattr(api, "_lazy_init"):
            api._lazy_init = wrap_noting_accelerator_use(api._lazy_init)
    if torch.distributed.is_available():
        torch.distributed.init_process_group = wrap_noting_accelerator_use(torch.distributed.init_process_group)
