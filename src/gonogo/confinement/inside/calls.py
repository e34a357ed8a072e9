"""System calls that can be heard, by name: their numbers on x86_64 and aarch64 (None: it has no such call)."""

COMMANDS = {
    "execve": (59, 221), "execveat": (322, 281), "connect": (42, 203), "exit_group": (231, 94),
}  # fmt: skip
"""What the commands of a script do: start, reach for a network, end with a status."""
