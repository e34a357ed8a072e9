"""Converts a Jupyter notebook to the Python that it runs from first to last cell, with the file's line numbers."""

from __future__ import annotations

import json
import re
from typing import Any

SUFFIX = ".ipynb"
_MAGIC_PATTERN = re.compile(r"^(\s*)(?:[%!?].*|[\w.]+\?\??\s*)$")
"""IPython's own syntax, which isn't Python: ``%matplotlib inline``, ``!pip install x``, ``torch?``."""


def notebook_to_python(data: bytes) -> bytes | None:
    """The Python code of a notebook's bytes; None if they aren't a notebook.

    Each line of code gets the line number that it has in the file, provided that the file has one line for each, as
    Jupyter writes it. IPython's own syntax becomes ``pass``.
    """
    try:
        document: Any = json.loads(data)
        cells = document["cells"] if isinstance(document, dict) else None
    except (ValueError, KeyError, RecursionError):
        return None
    if not isinstance(cells, list):
        return None
    written = data.decode("utf-8", "replace").splitlines()
    found: list[str] = []
    for cell in cells:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            lines = _cell_lines(cell.get("source"))
            if lines and lines[0].startswith("%%"):
                continue  # a cell magic: the cell may be in another language
            for line in lines:
                number = _find_source_line(line, written, len(found))
                found += [""] * (number - len(found))
                found.append(_MAGIC_PATTERN.sub(r"\1pass", line))
    return ("\n".join(found) + "\n").encode("utf-8", "surrogatepass")


def _cell_lines(source: Any) -> list[str]:
    text = "".join(one for one in source if isinstance(one, str)) if isinstance(source, list) else source
    return text.splitlines() if isinstance(text, str) else []


def _find_source_line(line: str, file_lines: list[str], start_line: int) -> int:
    """The 0-based number of the file's line that holds this line of code; ``start_line`` if there is none."""
    wanted = {json.dumps(line), json.dumps(line, ensure_ascii=False)}
    starts = tuple(one[:-1] for one in wanted)
    for number in range(start_line, min(start_line + 2000, len(file_lines))):
        stripped = file_lines[number].strip().removeprefix('"source": [').strip()
        if stripped.startswith(starts) and stripped.rstrip(",]} ").endswith('"') and _decodes_to(stripped, line):
            return number
    return start_line


def _decodes_to(stripped: str, line: str) -> bool:
    """Whether a line of the notebook's JSON contains this line of code."""
    try:
        return str(json.loads(stripped.rstrip(",]} "))).rstrip("\n") == line
    except ValueError:
        return False
