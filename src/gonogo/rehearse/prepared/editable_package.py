"""The project's own package beside what is installed, as after ``pip install -e . --no-deps``."""

from __future__ import annotations

from collections.abc import Callable

from gonogo.evidence.environment.own_package import CONSOLE_SCRIPT, NO_PACKAGES, OwnPackage, modules_in
from gonogo.evidence.environment.package_name import canonical


def beside_others(own: OwnPackage, others: Callable[[str], bool]) -> dict[str, bytes]:
    """Where its folder holds packages that ``others`` are called like too: what stands for the rest of them alone.

    An editable install comes last on the path; ``PYTHONPATH`` comes before what is installed, and would hide it.
    """
    modules = modules_in(own.source)
    hidden = {name for name in modules if canonical(name) != own.name and others(name)}
    if not hidden:
        return {}
    return {
        f"project/code/{name}/__init__.py": _ELSEWHERE.format(folder=str((own.source / name).absolute())).encode()
        for name in modules - hidden - NO_PACKAGES
    }


_ELSEWHERE = """\
__path__ = [{folder!r}]
__file__ = {folder!r} + "/__init__.py"
with open(__file__, encoding="utf-8") as _file:
    exec(compile(_file.read(), __file__, "exec"))
"""


def lay_scripts(own: OwnPackage) -> dict[str, bytes]:
    """What stands for an installed package beside its code: its commands, and what ``importlib.metadata`` reads."""
    files: dict[str, bytes] = {}
    for name, target in own.scripts.items():
        module, _, function = target.partition(":")
        if CONSOLE_SCRIPT.fullmatch(f"{name}={module}:{function}"):
            text = f"#!/usr/bin/env python\nimport sys\nfrom {module} import {function.partition('.')[0]}\n"
            files[f"project/bin/{name}"] = f"{text}sys.exit({function}())\n".encode()
    if own.name and own.version:
        folder = f"project/site/{own.name.replace('-', '_')}-{own.version}.dist-info"
        files[f"{folder}/METADATA"] = f"Metadata-Version: 2.1\nName: {own.name}\nVersion: {own.version}\n".encode()
        lines = [f"{name} = {target}" for name, target in own.scripts.items()]
        files[f"{folder}/entry_points.txt"] = "\n".join(["[console_scripts]", *lines, ""]).encode()
    return files
