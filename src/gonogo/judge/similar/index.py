"""The shipped indexes: hashed features, and the public threads or the hazards' test cases that have them.

``scripts/similar_threads.py`` builds ``threads.msgpack``, which has only the address, the title and the features of
each thread. The index of cases (``cases.py``) stores each case as a thread, with the case's name as the address and
the features of its frames.
"""

from __future__ import annotations

import math
import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gonogo.judge.similar.features import Features

PATH = Path(__file__).with_name("threads.msgpack")
_WEIGHT_SCALE = 100
"""Weights are stored as hundredths, in a byte."""
_MIN_SHARED_WEIGHT = 1.4
"""What a log and a thread must share at least, in units of unique features: more than an exception's name."""
_MIN_SHARED_OF_CUT = 0.8
"""The same for a truncated log: more than the frames that many training runs share."""


class IssueThread(msgspec.Struct, frozen=True, array_like=True):
    """A public thread. ``hazard`` and ``shows`` (what it shows, also in Chinese) are empty if unknown."""

    address: str
    title: str = ""
    hazard: str = ""
    shows: str = ""
    shows_zh: str = ""
    cited: bool = False
    """True if the thread is in the index because a hazard's page cites it."""


class _IndexFile(msgspec.Struct, frozen=True):
    """The file format. Arrays of numbers are little-endian; the entries of feature n start at ``starts[n]``."""

    threads: tuple[IssueThread, ...]
    hashes: bytes  # 32 bits each, ascending
    starts: bytes  # 32 bits each, one more than hashes
    having: bytes  # 16 bits each: indices of the threads that have the feature
    weights: bytes  # 8 bits each: the feature's weight in that thread
    lengths: bytes  # 32-bit floats: the norm of each thread's feature vector


class ThreadIndex:
    """An inverted index from features to threads. Raises OSError or msgspec.MsgspecError if it can't be read."""

    def __init__(self, data: bytes) -> None:
        stored = msgspec.msgpack.decode(data, type=_IndexFile)
        self.threads: Sequence[IssueThread] = stored.threads
        self._hashes = _read_array("I", stored.hashes)
        self._starts = _read_array("I", stored.starts)
        self._having = _read_array("H", stored.having)
        self._weights = stored.weights
        self._lengths = _read_array("f", stored.lengths)

    @classmethod
    def shipped(cls) -> ThreadIndex:
        """The index of the public threads."""
        return cls(PATH.read_bytes())

    def similar_to(self, features: Features, excluded: Collection[int] = ()) -> list[tuple[float, int]]:
        """Threads that share features with a log, as (cosine similarity from 0 to 1, index), the most similar first.

        Features that fewer threads have weigh more. The threads in ``excluded`` are skipped.
        """
        square, shared = self._squared_norm_and_products(
            features, excluded, _MIN_SHARED_WEIGHT, lambda weight, other: weight * other
        )
        length = math.sqrt(square) or 1.0
        found = [(product / length / self._lengths[thread], thread) for thread, product in shared.items()]
        return sorted(found, key=lambda one: (-one[0], one[1]))

    def containing(self, features: Features, excluded: Collection[int] = ()) -> list[tuple[float, int]]:
        """Threads that have most of a truncated log's features, as (share from 0 to 1, index), best first."""
        square, shared = self._squared_norm_and_products(
            features, excluded, _MIN_SHARED_OF_CUT, lambda weight, other: weight * min(weight, other)
        )
        return sorted(((part / square, thread) for thread, part in shared.items()), key=lambda one: (-one[0], one[1]))

    def _squared_norm_and_products(
        self,
        features: Features,
        excluded: Collection[int],
        min_similarity: float,
        combine: Callable[[float, float], float],
    ) -> tuple[float, dict[int, float]]:
        """The squared norm of a log's features, and the product with each thread that reaches the minimum."""
        shared: dict[int, float] = {}
        square = 0.0
        for key, weight in features.items():
            number = bisect_left(self._hashes, key)
            known = number < len(self._hashes) and self._hashes[number] == key
            begin, end = (self._starts[number], self._starts[number + 1]) if known else (0, 0)
            rarity = _rarity(len(self.threads), max(end - begin, 1))
            square += (weight * rarity) ** 2
            for place in range(begin, end):
                thread = self._having[place]
                more = combine(weight, self._weights[place] / _WEIGHT_SCALE) * rarity**2
                shared[thread] = shared.get(thread, 0.0) + more
        enough = min_similarity * _rarity(len(self.threads), 1) ** 2
        return square, {one: more for one, more in shared.items() if more >= enough and one not in excluded}

    def features_of(self) -> list[Features]:
        """The features of each thread, in the order of the threads."""
        found: list[Features] = [{} for _ in self.threads]
        for number, key in enumerate(self._hashes):
            for place in range(self._starts[number], self._starts[number + 1]):
                found[self._having[place]][key] = self._weights[place] / _WEIGHT_SCALE
        return found


def pack_index(threads: Sequence[tuple[IssueThread, Features]]) -> bytes:
    """Serialize an index of these threads. Raises ValueError for more than 65535 of them."""
    if len(threads) > 0xFFFF:
        raise ValueError(f"{len(threads)} threads: an index holds 65535")
    by_key: dict[int, list[tuple[int, float]]] = {}
    for number, (_, features) in enumerate(threads):
        for key, weight in features.items():
            by_key.setdefault(key, []).append((number, weight))
    hashes, starts, having, weights = array("I"), array("I", [0]), array("H"), bytearray()
    squares = [0.0] * len(threads)
    for key in sorted(by_key):
        hashes.append(key)
        for number, weight in by_key[key]:
            having.append(number)
            weights.append(min(round(weight * _WEIGHT_SCALE), 255))
            squares[number] += (weights[-1] / _WEIGHT_SCALE * _rarity(len(threads), len(by_key[key]))) ** 2
        starts.append(len(having))
    lengths = array("f", (math.sqrt(square) or 1.0 for square in squares))
    listed = tuple(thread for thread, _ in threads)
    stored = _IndexFile(
        listed,
        _little_endian_bytes(hashes),
        _little_endian_bytes(starts),
        _little_endian_bytes(having),
        bytes(weights),
        _little_endian_bytes(lengths),
    )
    return msgspec.msgpack.encode(stored)


def _rarity(threads: int, thread_count: int) -> float:
    """The weight of a feature by its rarity: ``thread_count`` of all threads have it."""
    return math.log(1 + threads / thread_count)


def _little_endian_bytes(numbers: array[Any]) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _read_array(code: str, data: bytes) -> array[Any]:
    numbers: array[Any] = array(code)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
