"""Runs ``python -c``, ``python - <<EOF`` and helpers whose output a launch script needs, in the script's world.

Such code counts GPUs, looks for a free port or writes a config. torch reports the devices of the virtual machine.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import runpy
import sys
from pathlib import Path

from gonogo.rehearse.shell.session import ShellSession

_LIBRARIES_WITH_TORCH = ("torch", "accelerate", "transformers", "deepspeed")


def main(session: ShellSession, kind: str, target: str, arguments: list[str]) -> None:
    """Run the code, module or script."""
    source = sys.stdin.read() if kind == "stdin" else target
    if kind == "script":
        if not os.path.isfile(target):
            print(f"python: can't open file {target!r}: [Errno 2] No such file or directory", file=sys.stderr)
            raise SystemExit(2)
        with contextlib.suppress(OSError):
            source = Path(target).read_text(encoding="utf-8", errors="replace")
    sys.argv = [{"script": target, "stdin": "-", "code": "-c"}[kind], *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(target)) if kind == "script" else "")
    with contextlib.ExitStack() as stack:
        if any(name in source for name in _LIBRARIES_WITH_TORCH):
            from gonogo.rehearse.launch.torch_devices import with_virtual_devices

            stack.enter_context(with_virtual_devices(session.settings.surroundings))
        if kind == "script":
            runpy.run_path(target, run_name="__main__")
        else:
            name = "<stdin>" if kind == "stdin" else "<string>"
            exec(compile(source, name, "exec"), {"__name__": "__main__", "__builtins__": builtins})


if __name__ == "__main__":
    main(ShellSession(Path(sys.argv[1])), sys.argv[2], sys.argv[3], sys.argv[4:])
