"""Frameworks whose rollout servers were not tried to their end: what comes before is rehearsed, and there CANNOT-TELL.

verl from 0.8 on passes nested (jagged) tensors between its workers.
"""

from __future__ import annotations

import importlib.metadata as metadata
from typing import Any

from gonogo.finding import Text
from gonogo.virtual.hooks.after_import import after_import
from gonogo.virtual.hooks.patching import Patches
from gonogo.virtual.unsupported import UnsupportedOperator

_TRIED = (0, 8)
"""verl's releases before this one."""


def install(patches: Patches) -> None:
    """Refuse them where they would start their servers."""

    def refuse(what: str, why: Text) -> Any:
        def start(*_: Any, **__: Any) -> Any:
            raise UnsupportedOperator(what, why)

        return start

    def of_verl(module: Any) -> None:
        version = metadata.version("verl")
        if tuple(int(part) for part in version.split(".")[:2] if part.isdecimal()) >= _TRIED:
            why = Text(
                "what it computes of completions was not rehearsed to its end: its workers pass nested tensors, and "
                "from 0.9 the threads of its TransferQueue would find another process's state here. Rehearse with "
                "verl 0.7.1",
                "它对回答所做的计算未能排练到底：其 worker 之间传递嵌套张量，"
                "且 0.9 起 TransferQueue 的线程在此会读到其他进程的状态。请用 verl 0.7.1 排练",
            )
            patches.set(module.vLLMReplica, "__init__", refuse(f"verl {version}'s rollout", why))

    patches.on_undo(after_import("verl.workers.rollout.vllm_rollout.vllm_async_server", of_verl))
