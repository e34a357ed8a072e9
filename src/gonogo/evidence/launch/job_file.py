"""Commands that are the name of a file: a job's, which a queue is given, or a notebook that is run."""

from __future__ import annotations

from collections.abc import Sequence

from gonogo.evidence.launch.manifest import is_manifest
from gonogo.evidence.notebook import SUFFIX as NOTEBOOK
from gonogo.evidence.paths import exists, is_file
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import translated
from gonogo.finding.errors import UserError

_NO_SUCH = translated("{path}: no such file")
_NOT_A_NOTEBOOK = translated("{path}: not a notebook")
YAML = (".yaml", ".yml")


def notebook_of_command(command: Sequence[str]) -> str | None:
    """The notebook of ``notebook.ipynb``, and of ``jupyter nbconvert --execute notebook.ipynb``."""
    notebooks = [word for word in command if word.endswith(NOTEBOOK) and is_file(word)]
    runs_it = (list(command[:2]) == ["jupyter", "nbconvert"] and "--execute" in command) or command[0] == "papermill"
    return notebooks[0] if notebooks and (len(command) == 1 or runs_it) else None


def file_of_command(command: Sequence[str]) -> str | None:
    """The notebook, or the manifest of a job, that a command is; None for any other command. Raises UserError."""
    if (notebook := notebook_of_command(command)) is not None:
        return notebook
    if len(command) != 1 or not command[0].endswith((*YAML, NOTEBOOK)):
        return None
    if not exists(command[0]):
        raise UserError(_NO_SUCH.format(path=command[0]))
    return command[0] if is_manifest(SourceFile.read(command[0])) else None


def notebook_source(path: str) -> SourceFile:
    """The Python of a notebook. Raises UserError for a file that is none."""
    source = SourceFile.read(path)
    if source.writable:  # read as it is: nothing of it is Python
        raise UserError(_NOT_A_NOTEBOOK.format(path=path))
    return source
