"""System calls that can be heard, by name: their numbers on x86_64 and aarch64 (None: it has no such call)."""

FILES = {
    "open": (2, None), "openat": (257, 56), "openat2": (437, 437), "execve": (59, 221), "execveat": (322, 281),
    "connect": (42, 203),
}  # fmt: skip
"""Open or start a file, or reach for a network."""
LOOKS = {
    "stat": (4, None), "lstat": (6, None), "access": (21, None), "readlink": (89, None), "newfstatat": (262, 79),
    "readlinkat": (267, 78), "faccessat": (269, 48), "statx": (332, 291), "faccessat2": (439, 439),
}  # fmt: skip
"""Only look whether a file is there."""
COMMANDS = {
    "execve": (59, 221), "execveat": (322, 281), "connect": (42, 203), "exit_group": (231, 94),
}  # fmt: skip
"""What the commands of a script do: start, reach for a network, end with a status."""
