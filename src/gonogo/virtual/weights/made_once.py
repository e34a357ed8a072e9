"""What stands in for absent weights is made by one rank: those that are rehearsed together see each other's files.

Each would make the same; but one that tidies up before it puts its files in place takes away those that another has
just begun to read.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import posix
from collections.abc import Callable


def made_once(scratch: str, path: str, make: Callable[[], str | None], tell: Callable[[str], None]) -> None:
    """Have ``make`` run by one of the processes that share ``scratch``, while the others wait for it.

    ``path`` names what is made. ``make`` sees whether it is there, and answers what it made in a sentence, or None.
    Each process tells the same sentence.
    """
    os.makedirs(scratch, exist_ok=True)
    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:24]
    record = posix.open(f"{scratch}/.made-{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(record, fcntl.LOCK_EX)
        said = posix.pread(record, 1 << 16, 0).decode()
        if not said:
            said = make() or ""
            posix.pwrite(record, said.encode(), 0)
    finally:
        posix.close(record)
    if said:
        tell(said)
