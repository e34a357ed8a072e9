"""Numbers on x86_64 and aarch64 of the system calls that can be traced, by name (None if there is no such call)."""

COMMANDS = {
    "execve": (59, 221), "execveat": (322, 281), "connect": (42, 203), "exit_group": (231, 94),
}  # fmt: skip
"""System calls of a script's commands: starting programs, connecting to a network, exiting with a status."""
