"""Checkpoints that a program loads itself and that are not here: generated without weights.

What is in such a file (names, sizes, a dictionary within a dictionary) only the file says. Loading it into a model is
therefore left out: the model keeps the weights that the program initialized, of the same sizes.
"""

from __future__ import annotations

import os

from gonogo.evidence.rehearsal.record import Failure
from gonogo.finding import translated
from gonogo.prepare.inferred.read_scope import scopes_at_failure
from gonogo.prepare.required_inputs import RequiredInput

CHECKPOINT_FORMAT = "checkpoint"
_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".tar")
_GENERATED = translated("generated checkpoint without weights: the model keeps those that the program initialized")


def infer_checkpoint_input(path: str, failure: Failure) -> RequiredInput | None:
    """A missing path as a checkpoint, if a function on the stack loads state into a model and one reads such files."""
    if not path.lower().endswith(_SUFFIXES) or os.path.isdir(path):
        return None
    scopes = list(scopes_at_failure(failure))
    loads = any(True for one in scopes for _ in one.calls("*.load_state_dict"))
    if not (loads and any(True for one in scopes for _ in one.calls("torch.load"))):
        return None
    return RequiredInput("data", path, "", path, "can-be-made", why=_GENERATED, format=CHECKPOINT_FORMAT)
