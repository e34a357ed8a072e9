"""Runs first in each Python that a rehearsed program starts, so that it finds what the program finds.

A rehearsal puts a copy first on the program's ``PYTHONPATH``, in a folder with a file ``gonogo`` that says where gonogo
is. It leaves no trace on ``sys.path``, runs the ``sitecustomize`` that would have been found without it, and never
raises: a Python that lacks what gonogo needs (another version, say) goes on without it.
"""

import os
import sys
from importlib.machinery import PathFinder

HERE = os.path.dirname(os.path.abspath(__file__))


def _attach_to_rehearsal() -> None:
    if sys.version_info < (3, 10):  # noqa: UP036 (a program may start any Python)
        return
    with open(os.path.join(HERE, "gonogo"), encoding="utf-8") as file:
        sys.path.append(file.read())
    try:
        from gonogo.virtual.ranks.started_process import attach
    except ImportError:
        return
    finally:
        del sys.path[-1]
    attach(HERE)


def _run_next_sitecustomize() -> None:
    sys.path[:] = [place for place in sys.path if place != HERE]
    spec = PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.path.isfile(os.path.join(HERE, "gonogo")):
    _attach_to_rehearsal()
    _run_next_sitecustomize()
