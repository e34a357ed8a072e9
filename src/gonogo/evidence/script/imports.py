"""The user's own modules: which files a script imports from within its project, and what they say.

Only files under the project's root are read, never installed packages; each once, however imports go round.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gonogo.evidence.document.source_file import SourceFile
from gonogo.evidence.script.names import BaseResolver
from gonogo.evidence.script.paths import added_paths
from gonogo.evidence.script.script import Script
from gonogo.evidence.script.view import View
from gonogo.finding.errors import UserError

MOST_SCRIPTS = 400
"""That one entry script leads to; a project of many entries may have ten times as many."""
_DEEPEST = 8
_NOT_OURS = frozenset(
    {"site-packages", "dist-packages", "node_modules", "__pycache__", ".git", ".venv", "venv", ".tox"}
)


class Project:
    """The files under a folder, read when they are first asked for.

    Scripts that share a project read each file once: of a folder of many, make one project and call :meth:`script`.
    """

    def __init__(self, root: Path, entry: SourceFile | None = None) -> None:
        self.root = os.path.realpath(root)
        self.by_module: dict[str, Script] = {}
        self.tops: set[str] = set()
        """The first parts of the modules' names."""
        self._shown_as = (self.root, str(root))
        self._scripts: dict[str, Script | None] = {}
        self._listings: dict[str, frozenset[str]] = {}
        self._views: dict[Script, View] = {}
        self._modules: dict[tuple[str, str], str | None] = {}
        self._added: list[str] = []
        self._searched: dict[str, tuple[list[str], frozenset[str]]] = {}
        self._at: dict[str, Script | None] = {}
        self._entry: Script | None = None
        if entry is not None:
            folder = os.path.dirname(entry.path)
            self._shown_as = (os.path.realpath(folder or "."), folder)
            self._entry = self.script(entry)

    @classmethod
    def around(cls, source: SourceFile) -> Project:
        """The project of a script that is read alone: its folder, or the one above its package."""
        folder = os.path.dirname(os.path.realpath(source.path))
        for _ in range(_DEEPEST):
            if not os.path.exists(os.path.join(folder, "__init__.py")):
                break
            folder = os.path.dirname(folder)
        return cls(Path(folder), source)

    @property
    def entry(self) -> Script:
        """The script that the project was made for. Raises ValueError where it was made for a folder."""
        if self._entry is None:
            raise ValueError(self.root)
        return self._entry

    def script(self, source: SourceFile) -> Script:
        """A script that is started itself, so what it puts on ``sys.path`` counts for all that it imports."""
        path = os.path.realpath(source.path)
        script = self._scripts.get(path)
        if script is None or script.source.data != source.data:
            script = self._scripts[path] = self._made(source, path)
            self._at.clear()
        elif script.source is not source:
            script.take(source)
        if b"sys.path" in source.data:
            self._added = list(dict.fromkeys([*self._added, *added_paths(script.index, path)]))
            self._modules.clear()
            self._searched.clear()
        return script

    def _made(self, source: SourceFile, path: str, module: str = "") -> Script:
        package = self._package_of(path)
        stem = os.path.basename(path).removesuffix(".py")
        if package:
            module = package if stem == "__init__" else f"{package}.{stem}"
        module = module or stem
        if module in self.by_module:
            module = os.path.relpath(path, self.root).removesuffix(".py").replace(os.sep, ".").lstrip(".")
        script = Script(source, self, package, module)
        self.by_module[module] = script
        self.tops.add(module.partition(".")[0])
        self._views[script] = View(self, script, path)
        return script

    def _package_of(self, path: str) -> str:
        """The package of a file by the ``__init__.py`` files above it."""
        parts: list[str] = []
        folder = os.path.dirname(path)
        while "__init__.py" in self._listing(folder) and len(parts) < 20:
            parts.append(os.path.basename(folder))
            folder = os.path.dirname(folder)
        return ".".join(reversed(parts))

    def _listing(self, folder: str) -> frozenset[str]:
        found = self._listings.get(folder)
        if found is None:
            try:
                found = frozenset(os.listdir(folder))
            except (OSError, ValueError):
                found = frozenset()
            self._listings[folder] = found
        return found

    def seen_from(self, script: Script) -> View:
        """What a script sees of the others."""
        return self._views[script]

    def script_of(self, resolver: BaseResolver) -> Script | None:
        """The script that names are resolved for."""
        made = (script for script in self._views if script.__dict__.get("names") is resolver)
        return next(made, None)

    def imported_by(self, script: Script) -> tuple[Script, ...]:
        """The modules of the project that a script imports itself."""
        return self._views[script].imported()

    def all_scripts(self, entry: Script | None = None) -> tuple[Script, ...]:
        """The entry and what it imports, and what those import, in the order in which they are met."""
        first = entry or self.entry
        found: dict[Script, None] = {first: None}
        queue = [first]
        while queue:
            for each in self.imported_by(queue.pop(0)):
                if each not in found and len(found) < MOST_SCRIPTS:
                    found[each] = None
                    queue.append(each)
        return tuple(found)

    def script_at(self, path: str, module: str) -> Script | None:
        """The script in a file of the project, imported as ``module``; None where it can't be read or too many were."""
        if path not in self._at:
            self._at[path] = self._read(path, module)
        return self._at[path]

    def _read(self, path: str, module: str) -> Script | None:
        real = os.path.realpath(path)
        if real in self._scripts:
            return self._scripts[real]
        if len(self._scripts) >= 10 * MOST_SCRIPTS or not self._is_ours(real):
            return None
        try:
            source = SourceFile.read(self._shown(real))
        except UserError:
            self._scripts[real] = None
            return None
        script = self._scripts[real] = self._made(source, real, module)
        return script

    def _shown(self, real: str) -> str:
        """A file's path as users are shown it: as the entry's or the folder's was given, absolute or not."""
        folder, shown = self._shown_as
        return os.path.normpath(os.path.join(shown, os.path.relpath(real, folder)))

    def _is_ours(self, real: str) -> bool:
        if real != self.root and not real.startswith(self.root.rstrip(os.sep) + os.sep):
            return False
        return not _NOT_OURS.intersection(real[len(self.root) :].split(os.sep))

    def module(self, dotted: str, folder: str) -> str | None:
        """The file of a module, as a script in ``folder`` would import it; None where the project has none."""
        key = (dotted, folder)
        if key not in self._modules:
            self._modules[key] = self._find_module(dotted.split("."), folder)
        return self._modules[key]

    def knows(self, top: str, folder: str) -> bool:
        """Whether any folder that a script in ``folder`` searches has a module or package of that name."""
        names = self._search(folder)[1]
        return top in names or f"{top}.py" in names

    def _search(self, folder: str) -> tuple[list[str], frozenset[str]]:
        searched = self._searched.get(folder)
        if searched is None:
            paths = self._search_path(folder)
            searched = self._searched[folder] = (paths, frozenset[str]().union(*map(self._listing, paths)))
        return searched

    def _find_module(self, parts: Sequence[str], folder: str) -> str | None:
        if self.knows(parts[0], folder):
            for base in self._search(folder)[0]:
                found = self._in_folder(parts, base)
                if found is not None:
                    return found
        return None

    def _in_folder(self, parts: Sequence[str], base: str) -> str | None:
        for i, part in enumerate(parts):
            listing = self._listing(base)
            last = i + 1 == len(parts)
            if part in listing:
                inner = os.path.join(base, part)
                if last and "__init__.py" in self._listing(inner):
                    return os.path.join(inner, "__init__.py")
                if not last and self._listing(inner):
                    base = inner
                    continue
            return os.path.join(base, f"{part}.py") if last and f"{part}.py" in listing else None
        return None

    def _search_path(self, folder: str) -> list[str]:
        """Where a script in ``folder`` finds modules: what was added, its folder and those above, and ``src``."""
        found = list(self._added)
        while self._is_ours(folder):
            found.append(folder)
            if folder == self.root:
                break
            folder = os.path.dirname(folder)
        return [*found, os.path.join(self.root, "src")]
