"""A copy of the user's project to try changes on: changed files are copied, everything else is symlinked.

Below a scratch folder, the copy has the same absolute path as the original, with the parent folders and their
entries, so that ``../data`` resolves as it should. Nothing of the user's is ever written through it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gonogo.check.fixes import apply_edits_to, unified_diff
from gonogo.finding import Edit, Text, UserError

COMMAND_FILE = ".gonogo-command.sh"
"""The script that holds a typed command in the copy, so that its options and variables can be edited like a file."""
TYPED = "<command>"
"""How reports refer to a typed command."""


class WorkingCopy:
    """The working folder and its surroundings, as a tree of folders and symlinks below ``scratch``."""

    def __init__(self, scratch: Path, folder: Path, command: Sequence[str]) -> None:
        self.root = scratch / "files"
        self.original_folder = Path(os.path.realpath(folder))
        self.folder = self.path_in_copy(self.original_folder)
        self._owned: dict[Path, bytes] = {}
        """By original path: the bytes that the user's file has."""
        self._opened: set[Path] = set()
        self._replace_folder_symlink(self.original_folder)
        self.words = [word.replace(f"{self.original_folder}/", f"{self.folder}/") for word in command]
        self.typed = False

    def path_in_copy(self, original: Path) -> Path:
        """The counterpart in the copy of an original path."""
        return Path(f"{self.root}{original}")

    def original_path(self, copy_path: str) -> Path | None:
        """The user's file behind a path seen from the copy's folder; None for a path outside the copy."""
        whole = os.path.normpath(os.path.join(self.folder, copy_path))
        inside = whole.removeprefix(str(self.root))
        return Path(inside) if inside != whole else None

    def with_original_paths(self, text: str) -> str:
        """A text in which paths of the copy are replaced by the user's own."""
        plain = text.replace(f"{self.folder}/", "").replace(str(self.root), "")
        return plain.replace(COMMAND_FILE, TYPED) if self.typed else plain

    def original_path_text(self, path: str) -> str:
        """A path of the copy as the user would write it."""
        original = self.original_path(path)
        if original is None:
            return path
        if original == self.command_script_path:
            return TYPED
        inside = os.path.relpath(original, self.original_folder)
        return str(original) if inside.startswith("..") else inside

    def write_command_script(self) -> None:
        """Write the typed command into a script of the copy, where it can be edited."""
        self.typed = True
        path = self.original_folder / COMMAND_FILE
        self._owned[path] = (shlex.join(self.words) + "\n").encode("utf-8", "surrogateescape")
        self.path_in_copy(path).write_bytes(self._owned[path])
        self.words = ["bash", COMMAND_FILE]

    @property
    def command_script_path(self) -> Path | None:
        """The path that the typed command's script would have in the original."""
        return self.original_folder / COMMAND_FILE if self.typed else None

    def command_script(self) -> str:
        """The typed command as the copy has it now."""
        return self.path_in_copy(self.original_folder / COMMAND_FILE).read_bytes().decode("utf-8", "surrogateescape")

    def replace_symlink(self, original: Path) -> bool:
        """Replace the copy's symlink by a real file; False if there is no such file."""
        if original in self._owned:
            return True
        if not original.is_file():
            return False
        self._replace_folder_symlink(original.parent)
        place = self.path_in_copy(original)
        self._owned[original] = original.read_bytes()
        with contextlib.suppress(FileNotFoundError):
            place.unlink()
        shutil.copy(original, place)
        return True

    def _replace_folder_symlink(self, folder: Path) -> None:
        """Turn a symlinked folder of the copy, and its parents, into a real folder of symlinks to the entries."""
        if folder in self._opened or folder == folder.parent:
            return
        self._replace_folder_symlink(folder.parent)
        self._opened.add(folder)
        place = self.path_in_copy(folder)
        if place.is_symlink():
            place.unlink()
        place.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(PermissionError), os.scandir(folder) as entries:
            for entry in entries:
                link = place / entry.name
                if entry.path != str(self.root.parent) and not os.path.lexists(link):
                    link.symlink_to(entry.path)

    @contextlib.contextmanager
    def as_working_directory(self) -> Iterator[None]:
        """Within the block, the copy's folder is the current one, and a UserError names the user's own paths."""
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            yield
        except UserError as error:
            raise UserError(
                Text(self.with_original_paths(error.text.en), self.with_original_paths(error.text.zh))
            ) from error
        finally:
            os.chdir(before)

    def contains_edited_files(self, edits: Sequence[Edit]) -> bool:
        """Whether all files of the edits are in the copy."""
        places = [self.original_path(edit.path) for edit in edits]
        return all(place is not None and self.replace_symlink(place) for place in places)

    def reset_and_apply(self, steps: Sequence[Sequence[Edit]]) -> None:
        """Reset the copy to the original, with these steps' edits applied one step after the other.

        Raises ValueError if an edit doesn't match what its file contains at that point.
        """
        contents = dict(self._owned)
        for edits in steps:
            by_file: dict[Path, list[Edit]] = {}
            for edit in edits:
                place = self.original_path(edit.path)
                if place is None or not self.replace_symlink(place):
                    raise ValueError(edit.path)
                contents.setdefault(place, self._owned[place])
                by_file.setdefault(place, []).append(edit)
            for place, own in by_file.items():
                contents[place] = apply_edits_to(contents[place], sorted(own, key=lambda edit: (edit.start, edit.end)))
        for place, data in contents.items():
            if self.path_in_copy(place).read_bytes() != data:
                self.path_in_copy(place).write_bytes(data)

    def changed_files(self) -> dict[Path, tuple[bytes, bytes]]:
        """The changed files, before and after, by original path; without the typed command."""
        return {
            path: (before, after)
            for path, before in sorted(self._owned.items())
            if path != self.command_script_path and (after := self.path_in_copy(path).read_bytes()) != before
        }

    def changed_command(self) -> tuple[dict[str, str], list[str]] | None:
        """The exported variables and words of the typed command after the edits; None if it is unchanged."""
        path = self.command_script_path
        if path is None:
            return None
        text = self.path_in_copy(path).read_bytes()
        if text == self._owned[path]:
            return None
        variables: dict[str, str] = {}
        words: list[str] = []
        for line in text.decode("utf-8", "surrogateescape").replace("\\\n", " ").splitlines():
            parts = shlex.split(line)
            if parts[:1] == ["export"]:
                variables.update(dict(part.partition("=")[::2] for part in parts[1:]))
            else:
                words += parts
        return variables, [self.with_original_paths(word) for word in words]

    def patch(self) -> str:
        """A unified diff of all changes, with paths relative to the patch's folder."""
        return make_patch(self.changed_files(), self.patch_folder())

    def patch_folder(self) -> Path:
        """The folder in which the patch applies: the working folder, or a parent that contains all changed files."""
        places = [self.original_folder, *(path.parent for path in self.changed_files())]
        return Path(os.path.commonpath(places))


def make_patch(changed_files: Mapping[Path, tuple[bytes, bytes]], folder: Path) -> str:
    """One diff for ``git apply`` and ``patch -p1`` in ``folder``."""
    return "".join(
        unified_diff(os.path.relpath(path, folder), before, after) for path, (before, after) in changed_files.items()
    )
