"""Whether a log is that of a program on Windows."""

from gonogo.hazards.rule import Pattern

ON_WINDOWS = Pattern(
    r"\b[A-Za-z]:\\[\w .\\-]|[\\/]python\.exe|\\torch\\|popen_spawn_win32|WinError|not supported in Windows"
)
"""Its paths, its Python, its own way to start processes."""
