"""tiktoken's published encodings, offline: it fetches their files at the first use, so an untrained one answers.

Each has as many tokens as published, at the same numbers, and the same special tokens. No text of letters and digits
meets a merge: a byte is a token, so texts are longer than in the run.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from collections.abc import Callable
from itertools import count, islice
from types import ModuleType
from typing import Any

from gonogo.finding import Text, translated
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches

_MADE = translated(
    "tiktoken's encoding {name} is untrained: its file is fetched from the network, which a rehearsal does not use; "
    "each byte is a token, so texts have more tokens than in the run"
)
_RANKS = {
    "vocab.bpe": 50_256,
    "r50k_base.tiktoken": 50_256,
    "p50k_base.tiktoken": 50_280,
    "cl100k_base.tiktoken": 100_256,
    "o200k_base.tiktoken": 199_998,
}
"""How many tokens a published file has."""
_TAKEN = {"p50k_base.tiktoken": 50_256}
"""A number that a special token has, among those of the file."""
_NOT_ASCII = range(0x80, 0x100)


def install(assume: Callable[[Text], object]) -> Callable[[], None]:
    """Have tiktoken read untrained encodings where the published ones are not in its cache."""
    patches = Patches()
    patches.on_undo(after_import("tiktoken.load", functools.partial(_follow, patches, functools.cache(assume))))
    return patches.undo


def _follow(patches: Patches, assume: Callable[[Text], object], module: ModuleType) -> None:
    for function in ("load_tiktoken_bpe", "data_gym_to_mergeable_bpe_ranks"):
        original = vars(module).get(function)
        if original is not None:
            patches.set(module, function, _with_untrained(original, assume))


def _with_untrained(original: Callable[..., Any], assume: Callable[[Text], object]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load(*args: Any, **kwargs: Any) -> Any:
        address = next(iter([*args, *kwargs.values()]), None)
        file = str(address).rpartition("/")[2]
        if file not in _RANKS or "://" not in str(address) or _is_cached(str(address)):
            return original(*args, **kwargs)
        name = "gpt2" if file == "vocab.bpe" else file.removesuffix(".tiktoken")
        assume(_MADE.format(name=name))
        return untrained_ranks(file)

    return load


def untrained_ranks(file: str) -> dict[bytes, int]:
    """A token for each byte, and merges that no ASCII text has, as many as the published file holds."""
    numbers = (number for number in count() if number != _TAKEN.get(file))
    merges = (bytes((first, second, third)) for first in _NOT_ASCII for second in _NOT_ASCII for third in range(0x100))
    tokens = (*(bytes((byte,)) for byte in range(0x100)), *islice(merges, _RANKS[file] - 0x100))
    return dict(zip(tokens, numbers, strict=False))


def _is_cached(address: str) -> bool:
    """Whether tiktoken has the file already, where it looks for it."""
    default = os.path.join(tempfile.gettempdir(), "data-gym-cache")
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR", default))
    return folder != "" and os.path.exists(os.path.join(folder, hashlib.sha1(address.encode()).hexdigest()))
