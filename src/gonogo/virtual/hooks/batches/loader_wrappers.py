"""accelerate's wrappers of a data loader, under which the rehearsal gives whole passes or none.

The one that dispatches reads a batch for each rank before it hands any out, and raises if it gets none; the other one
handed out ``None`` in that case until 1.12.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from gonogo.virtual.hooks.lifecycle import Lifecycle
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches

_WRAPPERS = ("DataLoaderShard", "DataLoaderDispatcher")


def patch_loader_wrappers(patches: Patches, lifecycle: Lifecycle) -> None:
    """Make wrappers of data loaders yield nothing in a pass for which the rehearsal reads no batch."""

    def patch_wrapper_classes(module: Any) -> None:
        for name in _WRAPPERS:
            owner = getattr(module, name, None)
            if owner is not None:
                patches.set(owner, "__iter__", _skip_empty_passes(owner.__iter__, lifecycle))

    patches.on_undo(after_import("accelerate.data_loader", patch_wrapper_classes))


def _skip_empty_passes(
    original: Callable[[Any], Iterator[Any]], lifecycle: Lifecycle
) -> Callable[[Any], Iterator[Any]]:
    @functools.wraps(original)
    def iterate_batches(loader: Any) -> Iterator[Any]:
        before = lifecycle.end.empty_passes
        batches = original(loader)
        try:
            with lifecycle.reading_several_batches(_batches_read_per_step(loader)):
                first = next(batches)
        except StopIteration:
            return
        except Exception:
            # Ranks that don't read are told by the one that does, whose own failure says if there is no data at all.
            if lifecycle.end.empty_passes == before and (_reads_data_itself(loader) or not lifecycle.has_made_steps):
                raise
            first = None
        if first is None and (lifecycle.end.empty_passes > before or not _reads_data_itself(loader)):
            batches.close()  # type: ignore[attr-defined]
            loader.end()
            return
        yield first
        yield from batches

    return iterate_batches


def _reads_data_itself(loader: Any) -> bool:
    """Whether this rank reads the data itself."""
    return not hasattr(loader, "split_batches") or loader.state.process_index == 0


def _batches_read_per_step(loader: Any) -> int:
    """How many batches of its loader a wrapper reads for each batch that it yields."""
    if not hasattr(loader, "split_batches") or loader.split_batches or getattr(loader, "submesh_tp", None):
        return 1
    return int(loader.state.num_processes)
