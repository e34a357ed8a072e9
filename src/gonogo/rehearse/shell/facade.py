"""``python -c``, ``python - <<EOF`` and helper scripts whose output a launch script needs: run, but kept harmless.

Such code asks how many GPUs there are, looks for a free port, or writes a configuration. torch answers for the
virtual machine; what is written lands in the session's folder; other changes of files are refused.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from gonogo.rehearse.shell.session import ShellSession

_LIBRARIES_WITH_TORCH = ("torch", "accelerate", "transformers", "deepspeed")
_CHANGES = frozenset(
    {"os.remove", "os.rename", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.link", "os.symlink", "os.utime"}
)


def main(session: ShellSession, kind: str, target: str, arguments: list[str]) -> None:
    """Run the code, module or script."""
    read = builtins.open
    if kind == "script":
        written = session.place(target, os.getcwd())
        path = str(written) if written.is_file() else target
        with contextlib.suppress(OSError), read(path, encoding="utf-8", errors="replace") as file:
            source = file.read()
        if not os.path.isfile(path):
            print(f"python: can't open file {target!r}: [Errno 2] No such file or directory", file=sys.stderr)
            raise SystemExit(2)
    else:
        source = sys.stdin.read() if kind == "stdin" else target
    sys.argv = [{"script": target, "stdin": "-", "code": "-c"}[kind], *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(target)) if kind == "script" else "")
    with contextlib.ExitStack() as stack:
        if any(name in source for name in _LIBRARIES_WITH_TORCH):
            from gonogo.rehearse.launch.torch_devices import with_virtual_devices

            stack.enter_context(with_virtual_devices(session.settings.surroundings))
        _keep_files(session)
        if kind == "script":
            runpy.run_path(path, run_name="__main__")
        else:
            name = "<stdin>" if kind == "stdin" else "<string>"
            exec(compile(source, name, "exec"), {"__name__": "__main__", "__builtins__": builtins})


def _keep_files(session: ShellSession) -> None:
    """Send what is opened for writing to the session's folder, and refuse other changes outside it."""
    opened = builtins.open
    inside = (str(session.folder.resolve()) + os.sep, "/dev/")

    def place_of(file: Any, mode: str) -> Any:
        if not isinstance(file, (str, bytes, os.PathLike)):
            return file
        name = os.fsdecode(file)
        if name.startswith(inside):
            return file
        place = session.place(name, os.getcwd())
        writes = any(letter in mode for letter in "wax+")
        if writes:
            real_parent = os.path.dirname(os.path.abspath(name))
            if os.path.isdir(real_parent):
                place.parent.mkdir(parents=True, exist_ok=True)
            if ("a" in mode or "r" in mode) and not place.exists() and os.path.isfile(name):
                place.write_bytes(Path(name).read_bytes())
        return place if writes or place.is_file() else file

    def open_(file: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        return opened(place_of(file, mode), mode, *rest, **options)

    def refuse(event: str, values: tuple[Any, ...]) -> None:
        if event not in _CHANGES:
            return
        if not isinstance(values[0], int) and not os.path.abspath(os.fsdecode(values[0])).startswith(inside):
            raise PermissionError(f"{event} {values[0]!r}: nothing of the user's is changed in a rehearsal")

    made = os.mkdir

    def mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        name = os.fsdecode(path)
        if name.startswith(inside):
            made(path, mode, dir_fd=dir_fd)
        elif os.path.isdir(name):
            raise FileExistsError(17, os.strerror(17), path)
        else:
            session.place(name, os.getcwd()).mkdir(parents=True, exist_ok=True)

    os.mkdir = mkdir
    builtins.open = open_
    io.open = open_  # pathlib opens with this one
    sys.addaudithook(refuse)


if __name__ == "__main__":
    main(ShellSession(Path(sys.argv[1])), sys.argv[2], sys.argv[3], sys.argv[4:])
