"""Variables that a launch script uses and nothing sets: why its launch may be refused, with nothing in their place."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from gonogo.evidence.launch.command_words import SHELLS

_MAX_BYTES = 1 << 20
_USED = re.compile(r"(?<!\\)\$(?:\{#?([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_SET = re.compile(
    r"(?:^|[\s;&|({`])([A-Za-z_]\w*)(?:\[[^\]]*\])?\+?=|\bfor\s+([A-Za-z_]\w*)\b|\$\{([A-Za-z_]\w*):?[=?-]"
    r"|\bprintf\s+-v\s+([A-Za-z_]\w*)",
    re.MULTILINE,
)
_READ = re.compile(r"\b(?:read|getopts|mapfile|readarray)\b([^\n;|]*)")
_OF_BASH = re.compile(
    r"BASH.*|RANDOM|SECONDS|LINENO|FUNCNAME|PIPESTATUS|OPTARG|OPTIND|UID|EUID|PPID|HOSTNAME|HOSTTYPE|OSTYPE|MACHTYPE"
    r"|PWD|OLDPWD|IFS|REPLY|SHELL|SHLVL|HOME|PATH|USER|TERM|LANG|EPOCHSECONDS|DIRSTACK|GROUPS"
)


def unset_variables(words: Sequence[str], cwd: str, environment: Mapping[str, str]) -> list[str]:
    """The variables without a value, in the order of the script's text; none for a script that can't be read."""
    script = next((word for word in words if not word.startswith("-") and os.path.basename(word) not in SHELLS), "")
    try:
        with open(os.path.join(cwd, script), encoding="utf-8", errors="replace") as file:
            text = file.read(_MAX_BYTES)
    except OSError:
        return []
    text = re.sub(r"(?m)(?:^|\s)#.*$", "", text)
    known = {*environment, *_given(text)}
    used = [match[1] or match[2] for match in _USED.finditer(re.sub(r"'[^'\n]*'", "", text))]
    return [name for name in dict.fromkeys(used) if name not in known and not _OF_BASH.fullmatch(name)]


def _given(text: str) -> Iterator[str]:
    for match in _SET.finditer(text):
        yield next(name for name in match.groups() if name)
    for match in _READ.finditer(text):
        yield from re.findall(r"[A-Za-z_]\w*", match[1])
