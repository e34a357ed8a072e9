"""Wheels that tests make, for a real pip or uv to install."""

from __future__ import annotations

import zipfile
from pathlib import Path


def wheel(folder: Path, name: str, version: str, requires: tuple[str, ...] = (), code: str = "") -> None:
    """A wheel of a package with one module, which holds its version and ``code``."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    lines = [f"Requires-Dist: {text}" for text in requires]
    with zipfile.ZipFile(folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name.replace('-', '_')}.py", f"__version__ = {version!r}\n{code}")
        file.writestr(
            f"{info}/METADATA", "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines])
        )
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
