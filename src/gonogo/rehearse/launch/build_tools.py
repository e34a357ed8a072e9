"""The environment for programs that compile an extension at startup: headers, and ``python3-config``.

Megatron-LM runs ``make`` to build its data indexer; others use scripts of their own. Such builds need
pybind11's headers, which torch also ships, and call ``python3-config`` for the extension suffix, which must be
that of the rank's Python.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sysconfig
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_HEADERS_VARIABLE = "CPLUS_INCLUDE_PATH"
"""Folders that a C++ compiler searches after those on its command line."""


def with_build_tools(environment: Mapping[str, str], python: str, programs: Path) -> dict[str, str]:
    """The environment with headers and ``python3-config``; ``programs`` is a folder to put first on PATH."""
    changed = dict(environment)
    path = environment.get("PATH", os.defpath)
    config = _python_config(python)
    if config is not None:
        (programs / "python3-config").write_text(f'#!/bin/sh\nexec {shlex.quote(str(config))} "$@"\n')
        (programs / "python3-config").chmod(0o755)
    folder = os.path.dirname(python)
    found = shutil.which("python3", path=path)
    before = [str(programs)] if found is None or os.path.dirname(found) == folder else [str(programs), folder]
    changed["PATH"] = os.pathsep.join([*before, path])
    inherited = [environment[_HEADERS_VARIABLE]] if environment.get(_HEADERS_VARIABLE) else []
    if headers := [*inherited, *_headers()]:
        changed[_HEADERS_VARIABLE] = os.pathsep.join(headers)
    return changed


def _python_config(python: str) -> Path | None:
    """The ``python3-config`` of a Python; a virtual environment has none of its own."""
    own = Path(os.path.realpath(python))
    places = (own.with_name(f"{own.name}-config"), own.with_name("python3-config"))
    return next((place for place in places if os.access(place, os.X_OK)), None)


@cache
def _headers() -> tuple[str, ...]:
    """Folders of the pybind11 headers that torch ships, and of Python's, if pybind11 is not installed; else none."""
    if find_spec("pybind11") is not None or (torch := find_spec("torch")) is None or torch.origin is None:
        return ()
    include = os.path.join(os.path.dirname(torch.origin), "include")
    return (include, sysconfig.get_path("include")) if os.path.isdir(os.path.join(include, "pybind11")) else ()
