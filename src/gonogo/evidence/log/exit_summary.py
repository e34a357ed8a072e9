"""How a run's processes ended, as the launchers report it: exit codes, signals, and torchrun's first failure."""

from collections.abc import Iterator

import msgspec

from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.evidence.patterns import Pattern

_ROOT_CAUSE_PATTERN = Pattern(r"Root Cause(?: \(first observed failure\))?:?")
_FIELD_PATTERN = Pattern(r"^\s*(host|rank|exitcode|error_file|traceback)\s*:\s*(\S.*?)\s*$")
_EXIT_CODE_PATTERN = Pattern(
    r"exits with return code = (-?\d{1,3})\b|failed \(exitcode: (-?\d{1,3})\)|\bexitcode\s*: (-?\d{1,3})\b"
    r"|returned non-zero exit status (-?\d{1,3})\b|(?:terminated with|killed by|died with"
    r"|received) (?:<?Signals\.)?signal (\w+)"
    r"|\bSignal (\d{1,2}) \(SIG\w+\)|died with <Signals\.(SIG\w+)"
    r"|exit(?:s|ed|ing)?(?: with)?(?: return| exit)? code:? ?(-?\d{1,3})\b"
)
_EXIT_CODE_BY_SIGNAL = {"SIGKILL": -9, "SIGSEGV": -11, "SIGBUS": -7, "SIGABRT": -6, "SIGTERM": -15, "SIGHUP": -1}


class FirstFailure(msgspec.Struct, frozen=True):
    """torchrun's report of the first failure that it observed. Fields that it doesn't state are None."""

    found: LineMatch
    rank: int | None
    exit_code: int | None
    host: str | None


def torchrun_first_failure(log: FailureLog) -> FirstFailure | None:
    """The block below torchrun's "Root Cause (first observed failure)", or None."""
    found = log.find(_ROOT_CAUSE_PATTERN)
    if found is None:
        return None
    fields: dict[str, str] = {}
    for line in log.lines_after(found.line, 9):
        if field := _FIELD_PATTERN.search(line.text):
            fields.setdefault(field.group(1), field.group(2))
    return FirstFailure(
        found, _parse_integer(fields.get("rank")), _parse_integer(fields.get("exitcode")), fields.get("host")
    )


def process_exits(log: FailureLog) -> Iterator[tuple[LineMatch, int]]:
    """The lines that state a process's exit code; for a signal it is negative (137, from a shell, becomes -9)."""
    for found in log.find_all(_EXIT_CODE_PATTERN):
        fields = next((group for group in found.match.groups() if group), "")
        code = _EXIT_CODE_BY_SIGNAL.get(fields, _parse_integer(fields))
        if code is not None:
            if "Signal " in found.match.group(0) and code > 0:
                code = -code
            yield found, 128 - code if 129 <= code <= 159 else code


def _parse_integer(text: str | None) -> int | None:
    number = (text or "").split(" ")[0]
    return int(number) if number.lstrip("-").isdecimal() else None
