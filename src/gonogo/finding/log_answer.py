"""What a diagnosis says first: why it failed, where, what to change; clues that speak for it; threads like it."""

from __future__ import annotations

import msgspec

from gonogo.finding.text import Text, translated


class CluePlace(msgspec.Struct, frozen=True):
    """A line of a log or of a file; ``line`` is 0 where it is not known."""

    path: str
    line: int
    text: str = ""


class Answer(msgspec.Struct, frozen=True):
    """One sentence. ``sure``: what happened is certain (why it did is the findings' to say, each as sure as it is)."""

    because: Text
    at: Text | None = None
    change: Text | None = None
    sure: bool = False
    hedge: Text | None = None
    """How sure the reason is, where it is not certain: ``most likely``."""
    hazard: str = ""
    """The hazard that it is of; empty where the log's own words say it."""

    @property
    def sentence(self) -> Text:
        """``It failed because …, at …; change: …``."""
        return translated("It failed{hedge} because {because}{at}{change}.").format(
            hedge=translated(", {hedge},").format(hedge=self.hedge) if self.hedge is not None else "",
            because=_strip_period(self.because),
            at=translated(", at {place}").format(place=self.at) if self.at is not None else "",
            change=translated("; change: {change}").format(change=_strip_period(self.change))
            if self.change is not None
            else "",
        )


class Clue(msgspec.Struct, frozen=True):
    """A sentence that joins facts of a failure with each other or with the run's settings, and where they stand."""

    text: Text
    places: tuple[CluePlace, ...] = ()
    against: tuple[str, ...] = ()
    """Hazards that it speaks against: their answers are withdrawn."""
    secondary: tuple[str, ...] = ()
    """Hazards that would only follow from what it tells: they stay possible, and stand last."""
    decides: bool = False
    """True where it tells what happened by itself, in a log without an exception."""


def _strip_period(text: Text) -> Text:
    return Text(text.en.rstrip(" ."), text.zh.rstrip(" 。"))


class SimilarThread(msgspec.Struct, frozen=True):
    """A public thread that looks like the failure, where its cause is not certain.

    At ``address``; ``title`` is its author's words, or empty where it is not known.

    ``settled`` is in a short phrase of ours what it shows or what settled it, ``hazard`` the hazard that it was of:
    each empty where that is not known. ``likeness`` is 0 to 1.
    """

    address: str
    title: str
    settled: Text | None
    hazard: str
    likeness: float
