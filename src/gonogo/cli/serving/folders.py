"""Restrict clients to the folders that were allowed when the server was started."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gonogo.evidence.paths import expand_user, is_folder, resolve_path
from gonogo.finding import Text, UserError, translated

_MAX_WORDS = 400
_MAX_WORD_LENGTH = 20_000


class RequestRefused(UserError):
    """A client's request is not allowed, or invalid; the message is for the client."""


class Folders:
    """The allowed folders; the first is the default working folder."""

    def __init__(self, allowed_paths: Sequence[Path], allow_hint: Text, option: str = "") -> None:
        """``allow_hint`` says how to allow more folders, ``option`` names the option. Raises UserError."""
        for path in allowed_paths:
            if not is_folder(expand_user(path)):
                named = f"{option} {path}".strip()
                raise UserError(translated("{named}: no such folder").format(named=named))
        self._way_out = allow_hint
        self.roots = [resolve_path(expand_user(path)) for path in allowed_paths]

    def folder(self, name: str) -> Path:
        """The working folder ``name``, relative to the first allowed one. Raises RequestRefused."""
        path = self._resolve_inside(name or ".", self.roots[0])
        if not is_folder(path):
            raise RequestRefused(translated("folder {name}: no such folder").format(name=repr(name)))
        return path

    def word(self, name: str, folder: Path) -> str:
        """A path as an argument of a command run in ``folder``, never taken as an option. Raises RequestRefused."""
        path = self._resolve_inside(name, folder)
        return f"./{path.relative_to(folder)}" if path.is_relative_to(folder) else str(path)

    def command(self, words: Sequence[str], folder: Path) -> list[str]:
        """The words of a command. Raises RequestRefused if any of them names a path outside the allowed folders.

        The first word, the program, may be anywhere: it is run, or followed, as the user's shell would do it.
        """
        if len(words) > _MAX_WORDS:
            raise RequestRefused(
                translated("the command has {count} words; the limit is {most}").format(
                    count=len(words), most=_MAX_WORDS
                )
            )
        for word in words:
            _check_word(word)
        for word in words[1:]:
            for part in (word, *word.split("=")[1:], *word.split(":")):
                if part and os.path.lexists(folder / expand_user(Path(part))):
                    self._resolve_inside(part, folder)
        return list(words)

    def _resolve_inside(self, name: str, base: Path) -> Path:
        _check_word(name)
        path = resolve_path(base / expand_user(Path(name)))
        if not any(path.is_relative_to(root) for root in self.roots):
            allowed = ", ".join(str(root) for root in self.roots)
            raise RequestRefused(
                translated("{name} is outside the allowed folders ({allowed}): {way_out}").format(
                    name=repr(name), allowed=allowed, way_out=self._way_out
                )
            )
        return path


def _check_word(word: str) -> None:
    if "\0" in word or len(word) > _MAX_WORD_LENGTH:
        raise RequestRefused(translated("an argument contains a null byte, or is too long"))
    try:
        word.encode()
    except UnicodeEncodeError:
        raise RequestRefused(translated("an argument is not valid Unicode")) from None
