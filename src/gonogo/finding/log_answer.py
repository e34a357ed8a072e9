"""The beginning of a diagnosis: why the run failed, where, what to change; supporting clues; similar threads."""

from __future__ import annotations

import msgspec

from gonogo.finding.text import Text, translated


class CluePlace(msgspec.Struct, frozen=True):
    """A line of a log or of a file; ``line`` is 0 if unknown."""

    path: str
    line: int
    text: str = ""


class Answer(msgspec.Struct, frozen=True):
    """Why the run failed. ``sure``: what happened is certain (the findings say how certain the cause is)."""

    because: Text
    at: Text | None = None
    change: Text | None = None
    sure: bool = False
    hedge: Text | None = None
    """How certain the reason is, if it isn't certain: ``most likely``."""
    hazard: str = ""
    """The hazard that it comes from; empty if it quotes the log's own message."""

    @property
    def sentence(self) -> Text:
        """``The run failed because …, at …; change: …``."""
        return translated("The run failed{hedge} because {because}{at}{change}.").format(
            hedge=translated(", {hedge},").format(hedge=self.hedge) if self.hedge is not None else "",
            because=_strip_period(self.because),
            at=translated(", at {place}").format(place=self.at) if self.at is not None else "",
            change=translated("; change: {change}").format(change=_strip_period(self.change))
            if self.change is not None
            else "",
        )


class Clue(msgspec.Struct, frozen=True):
    """A sentence that combines facts of a failure with each other or with the run's settings, and their places."""

    text: Text
    places: tuple[CluePlace, ...] = ()
    against: tuple[str, ...] = ()
    """Hazards that it contradicts: their answers are withdrawn."""
    secondary: tuple[str, ...] = ()
    """Hazards that would only be a consequence of it: they become merely possible, and come last."""
    decides: bool = False
    """True if it alone explains what happened, in a log without an exception."""


def _strip_period(text: Text) -> Text:
    return Text(text.en.rstrip(" ."), text.zh.rstrip(" 。"))


class SimilarThread(msgspec.Struct, frozen=True):
    """A public thread that resembles the failure, shown if the cause isn't certain.

    ``address`` is its URL; ``title`` is its author's words, or empty if unknown.

    ``settled`` is our short phrase for what it shows or what resolved it, ``hazard`` the hazard that it was about:
    each is empty if unknown. ``likeness`` is 0 to 1.
    """

    address: str
    title: str
    settled: Text | None
    hazard: str
    likeness: float
