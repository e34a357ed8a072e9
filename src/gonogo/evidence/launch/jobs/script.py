"""A shell's code in a scalar of YAML, as a part of a file in which each byte stands where it is written."""

from __future__ import annotations

import re

from gonogo.evidence.launch.jobs.yaml_node import Word
from gonogo.evidence.source_file import SourceFile


def code_in(word: Word) -> tuple[SourceFile, tuple[int, int]]:
    """A file, and the part of it that a shell may read.

    It is the word's own file where the code stands there as it is. Where YAML folds lines into one, the ends of those
    are escaped, each at the cost of a blank of the next one's indentation. Where that does not do, it is the code
    alone, from the line on which it begins.
    """
    source, text = word.place.source, word.text or ""
    start, end = word.place.start, word.place.end
    data = source.data
    if word.style in ("|", ">"):
        start = data.find(b"\n", start, end) + 1
    elif word.style:
        start, end = start + 1, end - 1
    if word.style == "|":
        return source, (start, end)
    written = data[start:end]
    if written.decode("utf-8", "replace") == text:
        return source, (start, end)
    folded = re.sub(rb"(?<=\S)\n (?= *\S)", rb"\\\n", written)
    if word.style != '"' and _plain(folded.decode("utf-8", "replace")) == _plain(text):
        return SourceFile(source.path, data[:start] + folded + data[end:], writable=source.writable), (start, end)
    before = b"\n" * data.count(b"\n", 0, start)
    alone = before + text.encode("utf-8", "surrogateescape")
    return SourceFile(source.path, alone, writable=False), (len(before), len(alone))


def _plain(code: str) -> str:
    lines = re.sub(r"[ \t]*\n\s*", "\n", code.replace("\\\n", " "))
    return re.sub(r"[ \t]+", " ", lines).strip()
