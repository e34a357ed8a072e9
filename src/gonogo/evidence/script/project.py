"""The user's own modules: the files that a script imports from its project, and how their names resolve.

Only files under the project's root are read, never installed packages, and each only once, even if imports are
cyclic.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path

from gonogo.evidence.script.module_search import ModuleSearch, PythonPath, may_change_sys_path, sys_path_additions
from gonogo.evidence.script.names import NameResolver, Names
from gonogo.evidence.script.script import Script
from gonogo.evidence.script.syntax_index import absolute_module
from gonogo.evidence.script.values import Value
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import UserError

MAX_SCRIPTS = 400
"""Maximum per entry script; a project with many entry scripts may have ten times as many."""
_MAX_DEPTH = 8
_MAX_STAR_IMPORTS = 50
"""A module with more star imports is a library's index: following it would mean reading the whole library."""


class Project:
    """The Python files under a folder, read on demand.

    Scripts that share a project read each file once: for many scripts in a folder, create one project and call
    :meth:`script`.
    """

    def __init__(self, root: Path, entry: SourceFile | None = None, path: PythonPath | None = None) -> None:
        self.root = os.path.realpath(root)
        self.search = ModuleSearch(self.root, path)
        self.by_module: dict[str, Script] = {}
        self.tops: set[str] = set()
        """The first parts of the modules' names."""
        self._shown_as = (self.root, str(root))
        self._scripts: dict[str, Script | None] = {}
        self._views: dict[Script, ProjectView] = {}
        self._at: dict[str, Script | None] = {}
        self._imports: dict[Script, tuple[Script, ...]] = {}
        self._entry: Script | None = None
        if entry is not None:
            folder = os.path.dirname(entry.path)
            self._shown_as = (os.path.realpath(folder or "."), folder)
            self._entry = self.script(entry)

    @classmethod
    def around(cls, source: SourceFile) -> Project:
        """The project of a single script: its folder, or the one above its package."""
        folder = os.path.dirname(os.path.realpath(source.path))
        for _ in range(_MAX_DEPTH):
            if not os.path.exists(os.path.join(folder, "__init__.py")):
                break
            folder = os.path.dirname(folder)
        return cls(Path(folder), source)

    @property
    def entry(self) -> Script:
        """The script that the project was created for. Raises ValueError if it was created for a folder."""
        if self._entry is None:
            raise ValueError(self.root)
        return self._entry

    def script(self, source: SourceFile) -> Script:
        """A script that is started itself, so that its changes of ``sys.path`` apply to all that it imports."""
        path = os.path.realpath(source.path)
        script = self._scripts.get(path)
        if script is None or script.source.data != source.data:
            script = self._scripts[path] = self._new_script(source, path)
            self._at.clear()
            self._imports.clear()
        elif script.source is not source:
            script.use_path_of(source)
        if self._add_search_paths_of(script, path):
            self._imports.clear()
        return script

    def _add_search_paths_of(self, script: Script, path: str) -> bool:
        """Add the folders that a script adds to ``sys.path`` to the search; True if any is new."""
        if not may_change_sys_path(script.source.data):
            return False
        cwd = self.search.path.cwd if self.search.path is not None else ""
        return self.search.add(sys_path_additions(script.index, path, cwd))

    def _new_script(self, source: SourceFile, path: str, module: str = "") -> Script:
        package = self.search.package_of(path)
        stem = os.path.basename(path).removesuffix(".py")
        if package:
            module = package if stem == "__init__" else f"{package}.{stem}"
        module = module or stem
        if module in self.by_module:
            module = os.path.relpath(path, self.root).removesuffix(".py").replace(os.sep, ".").lstrip(".")
        script = Script(source, package, module, self.imported_by)
        self.by_module[module] = script
        self.tops.add(module.partition(".")[0])
        script.elsewhere = self._views[script] = ProjectView(self, script, path)
        return script

    def view_from(self, script: Script) -> ProjectView:
        """A script's view of the project's other files."""
        return self._views[script]

    def script_of(self, resolver: NameResolver) -> Script | None:
        """The script to which a resolver belongs."""
        made = (script for script in self._views if script.__dict__.get("names") is resolver)
        return next(made, None)

    def imported_by(self, script: Script) -> tuple[Script, ...]:
        """The project's modules that a script imports directly."""
        if script not in self._imports:
            self._imports[script] = self._views[script].imported()
        return self._imports[script]

    def all_scripts(self, entry: Script | None = None) -> tuple[Script, ...]:
        """The entry and all modules that it imports, directly or not, in breadth-first order."""
        first = entry or self.entry
        found: dict[Script, None] = {first: None}
        queue = [first]
        while queue:
            for each in self.imported_by(queue.pop(0)):
                if each not in found and len(found) < MAX_SCRIPTS:
                    found[each] = None
                    queue.append(each)
        return tuple(found)

    def script_at(self, path: str, module: str) -> Script | None:
        """The script in a project file, imported as ``module``; None if it can't be read or the limit is reached."""
        if path not in self._at:
            self._at[path] = self._read_script(path, module)
        return self._at[path]

    def _read_script(self, path: str, module: str) -> Script | None:
        real = os.path.realpath(path)
        if real in self._scripts:
            return self._scripts[real]
        if len(self._scripts) >= 10 * MAX_SCRIPTS or not self.search.is_project_path(real):
            return None
        try:
            source = SourceFile.read(self._display_path(real))
        except UserError:
            self._scripts[real] = None
            return None
        script = self._scripts[real] = self._new_script(source, real, module)
        if self.search.path is not None and self._add_search_paths_of(script, real):
            self._imports.clear()
            for view in self._views.values():
                view.forget_missing_modules()
        return script

    def _display_path(self, real: str) -> str:
        """A file's path as shown to users: relative or absolute, as the entry's or the folder's path was given."""
        folder, shown = self._shown_as
        return os.path.normpath(os.path.join(shown, os.path.relpath(real, folder)))


class ProjectView:
    """What one script can import from the project's other files."""

    def __init__(self, project: Project, script: Script, path: str) -> None:
        self.project = project
        self.script = script
        self.path = path
        self.folder = os.path.dirname(path)
        self.top = self.folder
        """Above the script's package: what a relative import is relative to, in the end."""
        for _ in script.package.split(".") if script.package else ():
            self.top = os.path.dirname(self.top)
        self._found: dict[str, tuple[Script, str] | None] = {}
        self._starred: dict[str, Names | None] = {}
        self._asking: set[str] = set()
        self._named: dict[str, Names | None] = {}

    def forget_missing_modules(self) -> None:
        """Forget failed lookups, since another folder is searched now."""
        self._found = {name: at for name, at in self._found.items() if at is not None}

    def imported(self) -> tuple[Script, ...]:
        """The project's modules that the script imports, in the order of the file."""
        index = self.script.index
        found: dict[Script, None] = {}
        statements = [*index.by_type.get(ast.Import, ()), *index.by_type.get(ast.ImportFrom, ())]
        for node in sorted(statements, key=lambda each: (each.lineno, each.col_offset)):
            for dotted in self._modules_of(node):
                parts = dotted.split(".")
                for i in range(1, len(parts) + 1):
                    module = self._find_script(".".join(parts[:i]), getattr(node, "level", 0))
                    if module is not None and module is not self.script:
                        found[module] = None
        return tuple(found)

    def _modules_of(self, node: ast.Import | ast.ImportFrom) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        module = absolute_module(node, self.script.package)
        return [f"{module}.{alias.name}" if module else alias.name for alias in node.names if alias.name != "*"] or [
            module
        ]

    def _find_script(self, dotted: str, level: int = 0) -> Script | None:
        if not dotted or "" in dotted.split("."):
            return None
        search = self.project.search
        if search.path is not None and level and self.script.package:
            path = search.relative_import_file(dotted, self.top)
            return self.project.script_at(path, dotted) if path is not None else None
        path = search.module_file(dotted, self.folder)
        if path is None and self.top != self.folder and level:
            path = self.project.search.module_file(dotted, self.top)
        return self.project.script_at(path, dotted) if path is not None else None

    def _find_definition(self, dotted: str) -> tuple[Script, str] | None:
        """The script that defines a dotted name, and the name within it (``""`` for the module itself)."""
        if dotted not in self._found:
            self._found[dotted] = self._search_definition(dotted)
        return self._found[dotted]

    def _search_definition(self, dotted: str) -> tuple[Script, str] | None:
        parts = dotted.split(".")
        known = self.project.search.has_module(parts[0], self.folder) or self.project.search.has_module(
            parts[0], self.top
        )
        if not known and parts[0] not in self.project.tops:
            return None
        for i in range(len(parts), 0, -1):
            module = ".".join(parts[:i])
            script = self._find_script(module) or self._find_script(module, 1) or self.project.by_module.get(module)
            if script is not None and script is not self.script:
                return script, ".".join(parts[i:])
        return None

    def names(self, dotted: str) -> Names | None:
        """The names of the object at ``dotted`` in the project, its own first; None if it isn't the project's."""
        if dotted in self._named:
            return self._named[dotted]
        requested = bool(self._asking)
        found = self._find_names(dotted)
        if found or not requested:  # don't cache a failure inside a cyclic lookup: it isn't final
            self._named[dotted] = found
        return found

    def _find_names(self, dotted: str) -> Names | None:
        at = self._find_definition(dotted)
        if at is None or not at[1] or dotted in self._asking or len(self._asking) > _MAX_DEPTH:
            return None
        script, inner = at
        first, _, rest = inner.partition(".")
        bindings = script.index.module.names.get(first)
        if not bindings:
            if script.index.module.stars:
                self._asking.add(dotted)
                try:
                    return self.project.view_from(script).names_through_star_import(inner)
                finally:
                    self._asking.discard(dotted)
            return None
        self._asking.add(dotted)
        try:
            node = bindings[-1].node
            if bindings[-1].kind == "define":
                defined = script.names.names_of_definition(node)
                return tuple(f"{each}.{rest}" for each in defined) if rest else defined
            bound = script.names.names_of_binding(bindings[-1])
            if rest:
                bound = tuple(f"{each}.{rest}" for each in bound)
            return bound or None
        finally:
            self._asking.discard(dotted)

    def names_through_star_import(self, inner: str) -> Names | None:
        """The names of ``inner`` through ``from module import *``, cached: packages star-import one another."""
        if inner not in self._starred:
            self._starred[inner] = None  # ends cycles of star imports
            first = inner.partition(".")[0]
            stars = self.script.index.module.stars
            for module in stars if len(stars) <= _MAX_STAR_IMPORTS else ():
                if self.may_export(module, first) and (found := self.names(f"{module}.{inner}")):
                    self._starred[inner] = found
                    break
        return self._starred[inner]

    def may_export(self, module: str, name: str) -> bool:
        """Whether ``from module import *`` may provide a name: False if the module is known not to define it."""
        at = self._find_definition(module)
        if at is None or at[1]:
            return True
        scope = at[0].index.module
        return name in scope.names or bool(scope.stars)

    def kinds(self, dotted: str) -> Names | None:
        """The names of what created the object at ``dotted`` in a module of the project."""
        at = self._find_definition(dotted)
        key = f"kinds of {dotted}"
        if at is None or not at[1] or "." in at[1] or key in self._asking or len(self._asking) > _MAX_DEPTH:
            return None
        bindings = at[0].index.module.names.get(at[1])
        self._asking.add(key)  # `from .video import video` in a package is cyclic
        try:
            return at[0].names.kinds_agreed(bindings) if bindings else None
        finally:
            self._asking.discard(key)

    def result(self, dotted: str, path: tuple[int, ...]) -> Names | None:
        """The names of what created the object that a function of the project returns."""
        at = self._find_definition(dotted)
        key = f"result of {dotted} {path}"
        if at is None or not at[1] or key in self._asking or len(self._asking) > _MAX_DEPTH:
            return None
        self._asking.add(key)
        try:
            return at[0].names.kinds_returned_by(at[1], path)
        finally:
            self._asking.discard(key)

    def value(self, dotted: str) -> Value | None:
        """The value of a constant in another module of the project."""
        at = self._find_definition(dotted)
        if at is None or not at[1] or "." in at[1] or dotted in self._asking:
            return None
        self._asking.add(dotted)
        try:
            return at[0].values.module_value(at[1])
        finally:
            self._asking.discard(dotted)

    def class_at(self, dotted: str) -> tuple[NameResolver, ast.ClassDef] | None:
        """The class of the project at ``dotted``."""
        at = self._find_definition(dotted)
        if at is None or not at[1]:
            return None
        bindings = at[0].index.module.names.get(at[1], [])
        if len(bindings) == 1:
            if isinstance(bindings[0].node, ast.ClassDef):
                return at[0].names, bindings[0].node
            if bindings[0].kind == "import" and len(self._asking) < _MAX_DEPTH and dotted not in self._asking:
                self._asking.add(dotted)
                try:
                    return self.project.view_from(at[0]).class_at(bindings[0].value)
                finally:
                    self._asking.discard(dotted)
        return None

    def file_of(self, resolver: NameResolver) -> Script | None:
        """The script to which a resolver belongs."""
        return self.project.script_of(resolver)


def read_script(source: SourceFile, project: Project | None = None) -> Script:
    """A script with the modules beside it that it imports; for several scripts in a folder, pass their project."""
    return project.script(source) if project is not None else Project.around(source).entry
