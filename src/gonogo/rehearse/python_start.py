"""How a Python process of gonogo's own is started, so that nothing in the user's folder is taken for a module."""

from __future__ import annotations

from pathlib import Path

import gonogo

# `python -m` puts the current folder first on sys.path, where a user's `datasets/` or `types.py` would be imported in
# place of the real one; `-P` is new in Python 3.11. The folder of gonogo comes last: it is needed only where gonogo
# isn't installed in that Python.
_RUN = (
    "import runpy, sys; sys.path[0:1] = []; "
    "sys.path.append({root!r}); "
    "runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
)


def python_module(python: str, module: str, *arguments: str) -> list[str]:
    """The command line that runs ``module`` as ``python -m`` does, with the current folder off ``sys.path``."""
    root = str(Path(gonogo.__file__).resolve().parent.parent)
    return [python, "-c", _RUN.format(root=root, module=module), *arguments]
