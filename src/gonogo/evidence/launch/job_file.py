"""Commands that are only a file name: a job that is submitted to a queue, or a notebook that is run."""

from __future__ import annotations

from collections.abc import Sequence

from gonogo.evidence.launch.manifest import is_manifest
from gonogo.evidence.notebook import SUFFIX as NOTEBOOK
from gonogo.evidence.paths import exists, is_file
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import UserError, translated

_NO_SUCH_FILE = translated("{path}: no such file")
_NOT_A_NOTEBOOK = translated("{path} is not a Jupyter notebook")
YAML = (".yaml", ".yml")


def notebook_of_command(command: Sequence[str]) -> str | None:
    """The notebook in ``notebook.ipynb`` or ``jupyter nbconvert --execute notebook.ipynb``."""
    notebooks = [word for word in command if word.endswith(NOTEBOOK) and is_file(word)]
    runs_it = (list(command[:2]) == ["jupyter", "nbconvert"] and "--execute" in command) or command[0] == "papermill"
    return notebooks[0] if notebooks and (len(command) == 1 or runs_it) else None


def file_of_command(command: Sequence[str]) -> str | None:
    """The notebook or job manifest that a command consists of; None for any other command. Raises UserError."""
    if (notebook := notebook_of_command(command)) is not None:
        return notebook
    if len(command) != 1 or not command[0].endswith((*YAML, NOTEBOOK)):
        return None
    if not exists(command[0]):
        raise UserError(_NO_SUCH_FILE.format(path=command[0]))
    return command[0] if is_manifest(SourceFile.read(command[0])) else None


def notebook_source(path: str) -> SourceFile:
    """The Python code of a notebook. Raises UserError if the file is not a notebook."""
    source = SourceFile.read(path)
    if source.writable:  # it was read unchanged, so it contains no notebook
        raise UserError(_NOT_A_NOTEBOOK.format(path=path))
    return source
