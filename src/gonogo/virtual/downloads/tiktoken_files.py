"""tiktoken's published encodings, offline: tiktoken downloads their files at first use, so untrained ones replace them.

Each has as many tokens as the published one, with the same ids and special tokens. ASCII text never matches a merge:
each byte is a token, so texts have more tokens than in the run.
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

_UNTRAINED_ASSUMPTION = translated(
    "tiktoken's encoding {name} is untrained: its file is fetched from the network, which a rehearsal does not use; "
    "each byte is a token, so texts have more tokens than in the run"
)
_TOKENS_BY_FILE = {
    "vocab.bpe": 50_256,
    "r50k_base.tiktoken": 50_256,
    "p50k_base.tiktoken": 50_280,
    "cl100k_base.tiktoken": 100_256,
    "o200k_base.tiktoken": 199_998,
}
"""The number of tokens in each published file."""
_SPECIAL_TOKEN_IDS = {"p50k_base.tiktoken": 50_256}
"""Ids that a special token takes from the file's range."""
_NON_ASCII_BYTES = range(0x80, 0x100)


def install(assume: Callable[[Text], object]) -> Callable[[], None]:
    """Have tiktoken load untrained encodings if the published ones are not in its cache."""
    patches = Patches()
    patches.on_undo(after_import("tiktoken.load", functools.partial(_patch_loaders, patches, functools.cache(assume))))
    return patches.undo


def _patch_loaders(patches: Patches, assume: Callable[[Text], object], module: ModuleType) -> None:
    for function in ("load_tiktoken_bpe", "data_gym_to_mergeable_bpe_ranks"):
        original = vars(module).get(function)
        if original is not None:
            patches.set(module, function, _load_or_generate(original, assume))


def _load_or_generate(original: Callable[..., Any], assume: Callable[[Text], object]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_or_generate_ranks(*args: Any, **kwargs: Any) -> Any:
        address = next(iter([*args, *kwargs.values()]), None)
        file = str(address).rpartition("/")[2]
        if file not in _TOKENS_BY_FILE or "://" not in str(address) or _is_cached(str(address)):
            return original(*args, **kwargs)
        name = "gpt2" if file == "vocab.bpe" else file.removesuffix(".tiktoken")
        assume(_UNTRAINED_ASSUMPTION.format(name=name))
        return untrained_ranks(file)

    return load_or_generate_ranks


def untrained_ranks(file: str) -> dict[bytes, int]:
    """A token for each byte, and merges that never occur in ASCII text, up to the published number of tokens."""
    numbers = (number for number in count() if number != _SPECIAL_TOKEN_IDS.get(file))
    merges = (
        bytes((first, second, third))
        for first in _NON_ASCII_BYTES
        for second in _NON_ASCII_BYTES
        for third in range(0x100)
    )
    tokens = (*(bytes((byte,)) for byte in range(0x100)), *islice(merges, _TOKENS_BY_FILE[file] - 0x100))
    return dict(zip(tokens, numbers, strict=False))


def _is_cached(address: str) -> bool:
    """Whether the file is in tiktoken's cache."""
    default = os.path.join(tempfile.gettempdir(), "data-gym-cache")
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR", default))
    return folder != "" and os.path.exists(os.path.join(folder, hashlib.sha1(address.encode()).hexdigest()))
