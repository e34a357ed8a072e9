"""The binary search for the release that breaks or fixes a program: what to try next, and what is known so far."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from packaging.version import Version


class Judgement(str, Enum):
    """The judgement on a release. ``SKIPPED``: inconclusive, or it fails in another way."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"


class BisectionSearch:
    """Narrows down where good turns into bad, between a good and a bad release, whichever is older.

    Releases that can't be judged are skipped, as ``git bisect skip`` does. If there are several changes between the
    two ends, one of them is found.
    """

    def __init__(self, releases: Sequence[Version], good: Version, bad: Version) -> None:
        first, last = sorted((good, bad))
        between = sorted({release for release in releases if first < release < last})
        way = [first, *between, last]
        self._way = way if good < bad else way[::-1]
        self._good = 0
        self._bad = len(way) - 1
        self._skipped: set[int] = set()
        self._suggested: list[Version] = []

    @property
    def good(self) -> Version:
        """The good release nearest to the change, as known so far."""
        return self._way[self._good]

    @property
    def bad(self) -> Version:
        """The bad release nearest to the change, as known so far."""
        return self._way[self._bad]

    @property
    def suspects(self) -> list[Version]:
        """Releases that may be the first bad one, in search order; only one once it has been found."""
        return self._way[self._good + 1 : self._bad + 1]

    @property
    def max_remaining_trials(self) -> int:
        """Upper bound of the releases still to be tried, if none of them has to be skipped."""
        return len(self._untried_indices()).bit_length()

    def next(self) -> Version | None:
        """The release to try next: a suggested one, else the one nearest to the middle. None if none is left."""
        untried = self._untried_indices()
        while self._suggested:
            release = self._suggested.pop(0)
            if release in self._way and self._way.index(release) in untried:
                return release
        middle = (self._good + self._bad) / 2
        nearest = min(self._untried_indices(), key=lambda index: abs(index - middle), default=None)
        return None if nearest is None else self._way[nearest]

    def suggest(self, releases: Sequence[Version]) -> None:
        """Try these releases first, in this order, as long as they are still suspects when their turn comes."""
        self._suggested = list(releases)

    def record_judgement(self, release: Version, judgement: Judgement) -> None:
        """Record the judgement on a release that :meth:`next` returned."""
        index = self._way.index(release)
        if judgement is Judgement.GOOD:
            self._good = index
        elif judgement is Judgement.BAD:
            self._bad = index
        else:
            self._skipped.add(index)

    def _untried_indices(self) -> list[int]:
        return [index for index in range(self._good + 1, self._bad) if index not in self._skipped]
