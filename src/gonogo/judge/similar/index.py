"""The indexes that are shipped: hashed features, and which public threads, or logs of hazards' cases, have them.

``scripts/similar_threads.py`` makes ``threads.msgpack``. It holds nothing of a thread but its address, its title and
features. That of the cases (``cases.py``) has a case as the thread, its name as the address, its frames as features.
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
_MIN_SHARED = 1.4
"""What a log and a thread must have in common to be alike at all, in features that no other thread has: more than the
name of an exception."""
_MIN_SHARED_OF_CUT = 0.8
"""The same, of a log of which only a part is left: more than the frames that many trainings share."""


class IssueThread(msgspec.Struct, frozen=True, array_like=True):
    """A thread. ``hazard`` and what it shows, in both languages, are empty where that is not known."""

    address: str
    title: str = ""
    hazard: str = ""
    shows: str = ""
    shows_zh: str = ""
    cited: bool = False
    """True where it stands in the index because a hazard's page cites it."""


class _IndexFile(msgspec.Struct, frozen=True):
    """The file. Numbers are arrays in little-endian order; those of feature n begin at ``starts[n]``."""

    threads: tuple[IssueThread, ...]
    hashes: bytes  # 32 bits each, ascending
    starts: bytes  # 32 bits each, one more than hashes
    having: bytes  # 16 bits each: the number of a thread that has the feature
    weights: bytes  # 8 bits each: how much it says there
    lengths: bytes  # floats of 32 bits: of each thread's features as a vector


class ThreadIndex:
    """Threads by their features. Raises OSError and msgspec.MsgspecError where the file can't be read."""

    def __init__(self, data: bytes) -> None:
        stored = msgspec.msgpack.decode(data, type=_IndexFile)
        self.threads: Sequence[IssueThread] = stored.threads
        self._hashes = _numbers("I", stored.hashes)
        self._starts = _numbers("I", stored.starts)
        self._having = _numbers("H", stored.having)
        self._weights = stored.weights
        self._lengths = _numbers("f", stored.lengths)

    @classmethod
    def shipped(cls) -> ThreadIndex:
        """That of the public threads."""
        return cls(PATH.read_bytes())

    def alike(self, features: Features, excluded: Collection[int] = ()) -> list[tuple[float, int]]:
        """The threads that share features with a log, most alike first: the cosine (0 to 1) and the thread's number.

        A feature counts the more the fewer threads have it. The numbers in ``excluded`` are passed over.
        """
        square, shared = self._shared(features, excluded, _MIN_SHARED, lambda weight, other: weight * other)
        length = math.sqrt(square) or 1.0
        found = [(product / length / self._lengths[thread], thread) for thread, product in shared.items()]
        return sorted(found, key=lambda one: (-one[0], one[1]))

    def containing(self, features: Features, excluded: Collection[int] = ()) -> list[tuple[float, int]]:
        """The threads that have most of what is left of a log: the part of it (0 to 1), and the thread's number."""
        square, shared = self._shared(
            features, excluded, _MIN_SHARED_OF_CUT, lambda weight, other: weight * min(weight, other)
        )
        return sorted(((part / square, thread) for thread, part in shared.items()), key=lambda one: (-one[0], one[1]))

    def _shared(
        self,
        features: Features,
        excluded: Collection[int],
        min_similarity: float,
        combine: Callable[[float, float], float],
    ) -> tuple[float, dict[int, float]]:
        """The square of what a log has, and what each thread has in common with it, where that is no less than that."""
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


def packed(threads: Sequence[tuple[IssueThread, Features]]) -> bytes:
    """The index of these threads as a file's bytes. Raises ValueError for more than 65535 of them."""
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
    stored = _IndexFile(listed, _bytes(hashes), _bytes(starts), _bytes(having), bytes(weights), _bytes(lengths))
    return msgspec.msgpack.encode(stored)


def _rarity(threads: int, thread_count: int) -> float:
    """How much a feature says that so many of the threads have."""
    return math.log(1 + threads / thread_count)


def _bytes(numbers: array[Any]) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _numbers(code: str, data: bytes) -> array[Any]:
    numbers: array[Any] = array(code)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
