"""Compiles an environment's packages once: confined programs can't write bytecode, so each would compile them anew."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

_MARK = "bytecode.txt"
"""In the environment's folder: its packages have been compiled."""
_NOT_COMPILED = r"/(?:.*/)?(?:tests?|benchmarks?)/"
_TIMEOUT = 600.0


def compile_packages(folder: Path) -> None:
    """Compile the packages in a virtual environment, unless that was done before.

    Nothing of theirs is run: this Python reads their sources, without its own packages. Packages that are links to
    other environments are left as they are. What can't be compiled stays as it is.
    """
    mark = folder / _MARK
    if mark.exists():
        return
    for packages in sorted((folder / "lib").glob("python3.*/site-packages")):
        own = [str(one) for one in sorted(packages.iterdir()) if one.suffix in ("", ".py") and not one.is_symlink()]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        left_out = re.escape(str(packages)) + _NOT_COMPILED
        command = [sys.executable, "-I", "-S", "-m", "compileall", "-qq", "-j", "0", "-x", left_out, "-i", "-"]
        try:
            subprocess.run(
                command, input="\n".join(own), text=True, env=environment, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, timeout=_TIMEOUT, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return
    mark.write_text("", encoding="utf-8")
