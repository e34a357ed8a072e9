"""Commands in an environment that was filled by another Python: they are started by the environment's own."""

from __future__ import annotations

import sys
from pathlib import Path

# As uv writes them into a relocatable environment: found from where the command lies.
_RELOCATABLE = b"""#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")"/'python' "$0" "$@"
' '''
"""
_MAX_BYTES = 1 << 20


def own_interpreter(folder: Path) -> None:
    """Have the commands below ``folder/bin`` that name this Python be started by ``folder/bin/python``."""
    for file in (folder / "bin").iterdir():
        if file.is_symlink() or not file.is_file() or file.stat().st_size > _MAX_BYTES:
            continue
        content = file.read_bytes()
        head, newline, rest = content.partition(b"\n")
        if head.startswith(b"#!/bin/sh") and rest.startswith(b"'''exec' "):  # too long a path for a first line
            head, newline, rest = b"#!" + rest.split(b" ", 2)[1].strip(b"'\""), b"\n", rest.partition(b"' '''\n")[2]
        if newline and head[2:].strip() in _names():
            file.write_bytes(_RELOCATABLE + rest)


def _names() -> set[bytes]:
    return {str(path).encode() for path in (sys.executable, Path(sys.executable).resolve(), Path(sys.executable))}
