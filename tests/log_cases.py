"""The logs of a hazard's cases: ``bad….log`` and ``good….log``, and ``lines.log``, which holds those of one line.

A line of ``lines.log`` is ``bad_only_the_error: RuntimeError: …``: the case's name, and all that there is of its log.
What was given beside a log stands beside it: ``bad.config.json``, ``bad.launch.sh``, ``bad.script.py``,
``bad.versions.json``.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from gonogo.diagnose.findings import read_failure
from gonogo.finding import Finding
from gonogo.judge.similar.cases import case_logs

_BESIDE = {
    "deepspeed_config": ".config.json",
    "launch": ".launch.sh",
    "script": ".script.py",
    "environment": ".versions.json",
}


@dataclass(frozen=True)
class LogCase:
    """One log, and what was given with it."""

    folder: Path
    name: str
    text: bytes

    @property
    def is_bad(self) -> bool:
        """Whether the hazard is to be found in it."""
        return self.name.startswith("bad")

    def findings(self, text: bytes | None = None) -> tuple[Finding, ...]:
        """What ``diagnose`` finds in the log (or in ``text``); its places are in a file of the case's name."""
        given = {option: self.folder / f"{self.name}{ending}" for option, ending in _BESIDE.items()}
        present = {option: beside for option, beside in given.items() if beside.exists()}
        with tempfile.TemporaryDirectory(prefix="gonogo-case-") as scratch:
            log = Path(scratch) / f"{self.name}.log"
            log.write_bytes(self.text if text is None else text)
            return read_failure([str(log)], **present).report().findings

    def __str__(self) -> str:
        return f"{self.folder.name}/{self.name}"


def log_cases(folder: Path) -> list[LogCase]:
    """A hazard's logs, by name. Raises ValueError where a line has no name, or a name is there twice."""
    cases = [LogCase(folder, name, text) for name, text in case_logs(folder)]
    if len({case.name for case in cases}) < len(cases):
        raise ValueError(f"{folder.name}: two logs have one name")
    return sorted(cases, key=lambda case: case.name)
