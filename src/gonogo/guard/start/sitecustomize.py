"""Starts the guard in the Python processes of a guarded command; `gonogo run` puts a copy first on ``PYTHONPATH``.

The copy is in ``<folder of the run>/start/``, with a file ``packages`` that says where gonogo and msgspec are, so
that ``PYTHONPATH`` alone, which launchers pass on to other machines, is enough. It leaves no trace on ``sys.path``,
runs the ``sitecustomize`` that would have been found without it, and never raises.
"""

import os
import sys
from importlib.machinery import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

HERE = os.path.dirname(os.path.abspath(__file__))


class _PackageFinder:
    """Finds one package that the guard needs, and nothing else in the same folder."""

    # Quoted annotations and Python 3.6 syntax only: the command may start any Python.
    def __init__(self, name: str, place: str) -> None:
        self.name, self.place = name, place

    def find_spec(self, name: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        return PathFinder.find_spec(name, [self.place]) if name == self.name else None


def _start_guard() -> None:
    try:
        if sys.version_info < (3, 10):  # noqa: UP036 (it runs in every Python that the command starts)
            raise RuntimeError("Python 3.10 or newer is needed")
        with open(os.path.join(HERE, "packages"), encoding="utf-8") as file:
            places = dict(line.rstrip("\n").split("=", 1) for line in file)
        # gonogo always comes from here, even if the program's Python has one; msgspec only if that has none.
        sys.meta_path.insert(0, _PackageFinder("gonogo", places["gonogo"]))
        sys.meta_path.append(_PackageFinder("msgspec", places["msgspec"]))
        from gonogo.guard.rank.arming import arm

        arm(os.path.dirname(HERE))
    except Exception as error:
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _PackageFinder)]
        if "RANK" in os.environ and os.environ.get("GONOGO_GUARD_WORKER") in (None, str(os.getpid())):
            os.environ["GONOGO_GUARD_WORKER"] = "none"  # report only once, not again in child processes
            _print_error(error)


def _print_error(error: Exception) -> None:
    """Print one line to standard error in the language of the locale, without any of gonogo's modules."""
    locale = next((os.environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(name)), "")
    what = f"{type(error).__name__}: {error}"
    if "msgspec" in str(error):
        what += f"; {sys.executable} -m pip install msgspec"
    english = f"gonogo: the guard did not start in this process, and training goes on without it ({what})"
    chinese = f"gonogo：监护程序未能在本进程中启动，训练照常继续（{what}）"
    print(chinese if locale.lower().startswith("zh") else english, file=sys.stderr)


def _run_next_sitecustomize() -> None:
    sys.path[:] = [place for place in sys.path if place != HERE]
    spec = PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.path.isfile(os.path.join(HERE, "packages")):
    _start_guard()
    _run_next_sitecustomize()
