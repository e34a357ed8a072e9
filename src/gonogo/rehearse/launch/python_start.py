"""How gonogo starts its own Python processes, so that nothing in the user's folder shadows a module."""

from __future__ import annotations

import sys
from pathlib import Path

import gonogo

# `python -m` puts the current folder first on sys.path, so that a user's `datasets/` or `types.py` would shadow the
# real module; `-P` needs Python 3.11. gonogo's own folder comes last, and only for the Python that runs gonogo:
# it may be a site-packages folder, whose packages another environment must not see.
_RUN_MODULE_CODE = (
    "import sys; sys.path[0:1] = []; import runpy; {first}runpy.run_module({module!r}, run_name='__main__', "
    "alter_sys=True)"
)


# The kernel then kills the process when the thread that started it ends, for whatever reason (PR_SET_PDEATHSIG).
_DIE_WITH_PARENT = "sys.platform == 'linux' and __import__('ctypes').CDLL(None).prctl(1, 9); "


def python_module_command(python: str, module: str, *arguments: str, dies_with_parent: bool = False) -> list[str]:
    """The command line that runs ``module`` as ``python -m`` does, with the current folder off ``sys.path``."""
    first = _DIE_WITH_PARENT if dies_with_parent else ""
    if python == sys.executable:
        first += f"sys.path.append({str(Path(gonogo.__file__).resolve().parent.parent)!r}); "
    return [python, "-c", _RUN_MODULE_CODE.format(module=module, first=first), *arguments]
