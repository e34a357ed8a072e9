"""A port for a program's process group."""

from __future__ import annotations

import socket


def free_port() -> int:
    """One that nothing listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
