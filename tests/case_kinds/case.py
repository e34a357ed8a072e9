"""A small project, what is true of it, and the texts that the cases of several kinds share."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

# A program that fails for certain, wherever it runs: `rank=0` in every process.
FAULTY = 'import torch\n\ntorch.distributed.init_process_group("nccl", rank=0)\n'
RANK = "process-group-rank-fixed"
PLAIN = "import torch\n\nprint(torch.ones(1))\n"


@dataclass(frozen=True)
class Case:
    """A project, the command that is asked about, and what is true.

    ``verdict`` is what has to be said: GO, NO-GO or CANNOT-TELL; "not NO-GO" where a file or a value decides that may
    be where the run is; "not GO" where something has to be said. ``hazard`` is the cause that has to be certain.
    """

    kind: str
    name: str
    verdict: str
    why: str
    command: str
    files: dict[str, str] = field(default_factory=dict)
    hazard: str = ""

    def write(self, folder: Path) -> None:
        """Write its files."""
        (folder / ".git").mkdir()
        for name, text in self.files.items():
            (path := folder / name).parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def right(self, verdict: str, certain: set[str]) -> bool:
        """Whether that is what is true of it."""
        said = {"not NO-GO": verdict != "NO-GO", "not GO": verdict != "GO"}.get(self.verdict, verdict == self.verdict)
        return said and (not self.hazard or self.hazard in certain)


def answer(case: Case, folder: Path) -> tuple[str, set[str]]:
    """What check says of it: the verdict, and the hazards that are certain."""
    from gonogo.check.findings import check
    from gonogo.finding import Certainty

    case.write(folder)
    before = os.getcwd()
    os.chdir(folder)
    try:
        words = case.command.split()
        report = check(["."] if words == ["."] else (), () if words == ["."] else words, use_installed=False).report
    finally:
        os.chdir(before)
    certain = {one.hazard for one in report.findings if one.certainty is Certainty.CERTAIN}
    return report.verdict.value.upper(), certain
