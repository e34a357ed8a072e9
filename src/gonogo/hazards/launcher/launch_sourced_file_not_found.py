import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from gonogo.evidence.paths import is_file
from gonogo.evidence.shell.absent import MissingTarget
from gonogo.evidence.shell.text import Piece, ShellWord
from gonogo.hazards.rule import Certainty, Findings, Hazard, Launch, Run, Text

_MAX_DEPTH = 10


class LaunchSourcedFileNotFound(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A launch that is never started, or that has words from variables that nothing sets without the file."""
        if launch.in_container:
            return
        never = launch.never
        if never is not None:
            if never.command != "cd":
                yield self.finding(
                    self.texts["never"].format(path=never.path, command=never.place.text[:80]),
                    cure=self._choose_cure(never),
                    spans=(never.place.span(), launch.place.span()),
                )
            return
        absent = next((one for one in launch.absent if one.sure and one.command != "cd"), None)
        unset = list(dict.fromkeys(_variables_of_caller(launch.words))) if absent is not None else []
        if absent is None or not unset:
            return
        names = ", ".join(f"${name}" for name in unset[:4])
        yield self.finding(
            self.texts["unset"].format(path=absent.path, command=absent.place.text[:80], names=names),
            certainty=Certainty.LIKELY,
            cure=self._choose_cure(absent),
            spans=(absent.place.span(), launch.place.span()),
            confirm=self.texts["confirm"].format(names=" ".join(f"${name}" for name in unset[:4])),
        )

    def _choose_cure(self, absent: MissingTarget) -> Text:
        own = Path(os.path.abspath(absent.place.source.path)).parent
        for folder in (own, *own.parents[:3]):
            if is_file(folder / absent.written):
                return self.texts["there"].format(folder=folder)
        return self.texts["correct"]


def _variables_of_caller(words: Sequence[object]) -> Iterator[str]:
    """The variables in words that only the shell in which the script is started can set."""
    for word in words:
        if isinstance(word, ShellWord):
            yield from _variables_in(word.pieces, 0)


def _variables_in(pieces: Sequence[Piece], depth: int) -> Iterator[str]:
    for piece in pieces if depth < _MAX_DEPTH else ():
        if piece.variable:
            yield piece.variable
        yield from _variables_in(piece.inner, depth + 1)
