"""Checkpoints that gonogo prepare has generated: dictionaries without weights that any model takes as its own.

Whatever the program looks for in one is such a dictionary again. A model into which one is loaded, or what is left
after the program has renamed its (no) keys, keeps the weights that it has.
"""

from __future__ import annotations

import functools
import zipfile
from typing import Any

import torch

from gonogo.evidence.prepared import GENERATED_STATE
from gonogo.finding import translated
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.values.assumptions import Assume

_LOADED = translated(
    "a checkpoint that gonogo generated is loaded: the model keeps the weights that the program initialized, and the "
    "names and sizes in the real file are not compared with it"
)


class GeneratedState(dict[Any, Any]):
    """Empty, and without a key that is missing."""

    def __missing__(self, key: Any) -> GeneratedState:
        return GeneratedState()

    def __delitem__(self, key: Any) -> None:
        """Leave out what isn't there."""

    def pop(self, key: Any, *default: Any) -> Any:
        """The default, or an empty one of these."""
        return default[0] if default else GeneratedState()


class GeneratedStates:
    """Whether a generated checkpoint has been read, and what loading one into a model does."""

    def __init__(self, patches: Patches, assume: Assume) -> None:
        self._read = False
        self._assume = assume
        for owner, result in (
            (torch.nn.Module, torch.nn.modules.module._IncompatibleKeys([], [])),
            (torch.optim.Optimizer, None),
        ):
            patches.set(owner, "load_state_dict", self._wrap(vars(owner)["load_state_dict"], result))

    def of_file(self, loaded: Any, source: Any) -> Any:
        """What ``torch.load`` returns for a file: a generated state in place of the empty dictionary in its file."""
        if type(loaded) is not dict or loaded or not _is_generated(source):
            return loaded
        self._read = True
        return GeneratedState()

    def _wrap(self, original: Any, result: Any) -> Any:
        @functools.wraps(original)
        def load_state_dict(target: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
            if self._read and isinstance(state_dict, dict) and not state_dict:
                self._assume(_LOADED, "generated")
                return result
            return original(target, state_dict, *args, **kwargs)

        return load_state_dict


def _is_generated(source: Any) -> bool:
    try:
        if hasattr(source, "seek"):
            source.seek(0)
        with zipfile.ZipFile(source) as archive:
            return any(name.endswith(f"/{GENERATED_STATE}") for name in archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile):
        return False
