"""A Jupyter notebook as the Python that it runs from its first cell to its last, each line where the file has it."""

from __future__ import annotations

import json
import re
from typing import Any

SUFFIX = ".ipynb"
_MAGIC = re.compile(r"^(\s*)(?:[%!?].*|[\w.]+\?\??\s*)$")
"""Lines that are IPython's, and no Python: ``%matplotlib inline``, ``!pip install x``, ``torch?``."""


def python_of(data: bytes) -> bytes | None:
    """The Python of a notebook's bytes; None where they are no notebook.

    A line of code has the number of the line of the file that it stands on, as far as the file has a line for each, as
    Jupyter writes it. IPython's own lines become ``pass``.
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
            lines = _lines(cell.get("source"))
            if lines and lines[0].startswith("%%"):
                continue  # another language's cell
            for line in lines:
                number = _line_of(line, written, len(found))
                found += [""] * (number - len(found))
                found.append(_MAGIC.sub(r"\1pass", line))
    return ("\n".join(found) + "\n").encode("utf-8", "surrogatepass")


def _lines(source: Any) -> list[str]:
    text = "".join(one for one in source if isinstance(one, str)) if isinstance(source, list) else source
    return text.splitlines() if isinstance(text, str) else []


def _line_of(line: str, file_lines: list[str], start_line: int) -> int:
    """The number, from 0, of the line of the file with this line of code; the next free one where there is none."""
    wanted = {json.dumps(line), json.dumps(line, ensure_ascii=False)}
    starts = tuple(one[:-1] for one in wanted)
    for number in range(start_line, min(start_line + 2000, len(file_lines))):
        stripped = file_lines[number].strip().removeprefix('"source": [').strip()
        if stripped.startswith(starts) and stripped.rstrip(",]} ").endswith('"') and _same(stripped, line):
            return number
    return start_line


def _same(stripped: str, line: str) -> bool:
    try:
        return str(json.loads(stripped.rstrip(",]} "))).rstrip("\n") == line
    except ValueError:
        return False
