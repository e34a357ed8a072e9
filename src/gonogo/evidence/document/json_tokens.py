"""A tokenizer for JSON and for invalid variants of it: comments, single quotes, Python literals, templates.

It works on bytes, so that offsets are those of the file; every byte belongs to a token or to white space.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

# Each alternative matches or fails without backtracking, so the time is linear in the file's length.
_TOKEN = rb"""
  (?P<space>    [ \t\r\n]+ )
| (?P<template> \{\{ [^{}"'\n]* \}\} )
| (?P<mark>     [{}\[\],:] )
| (?P<string>   " [^"\\\n]* (?: \\ [^\n] [^"\\\n]* )* "
              | ' [^'\\\n]* (?: \\ [^\n] [^'\\\n]* )* ' )
| (?P<comment>  // [^\n]* | \# [^\n]* | /\* [\s\S]*? (?: \*/ | \Z ) )
| (?P<open>     ["'] [^\n]* )
| (?P<word>     (?: \$\{ [^{}\n]* \} | / (?! [/*] ) | [^\s,:{}\[\]"'\#/] )+ )
| (?P<stray>    [\s\S] )
"""
_NUMBER_PATTERN = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_JSON_WORDS = {b"true": True, b"false": False, b"null": None}
_JAVASCRIPT_NUMBERS = {b"NaN": float("nan"), b"Infinity": float("inf"), b"-Infinity": float("-inf")}
_PYTHON_WORDS = {b"True": True, b"False": False, b"None": None}
# Python refuses to parse longer integers.
_MAX_DIGITS = 4000


class Token(NamedTuple):
    """A token of a JSON file; white space is skipped.

    ``kind`` is ``mark``, ``string``, ``open`` (a string without a closing quote), ``word``, ``template``, ``comment``
    or ``stray``.
    """

    kind: str
    start: int
    end: int
    data: bytes


class Scalar(NamedTuple):
    """The value of a token. ``problem`` is the kind of its problem; ``correct`` is its spelling in valid JSON."""

    value: Any
    problem: str = ""
    known: bool = True
    correct: str | None = None


@functools.cache
def _token_pattern() -> re.Pattern[bytes]:
    return re.compile(_TOKEN, re.VERBOSE)


@functools.cache
def _number_regex() -> re.Pattern[bytes]:
    return re.compile(_NUMBER_PATTERN)


def tokenize(data: bytes, start: int = 0) -> Iterator[Token]:
    """The tokens of a file, starting at an offset."""
    for match in _token_pattern().finditer(data, start):
        kind = match.lastgroup or "stray"
        if kind != "space":
            yield Token(kind, match.start(), match.end(), match.group())


def parse_scalar(token: Token) -> Scalar:
    """The value of a token that is not punctuation or a comment."""
    if token.kind == "string":
        return _parse_string(token.data)
    if token.kind == "open":
        content = token.data[1:].rstrip().removesuffix(b",").decode("utf-8", "replace")
        return Scalar(content, "unclosed-string", correct=json.dumps(content, ensure_ascii=False))
    if token.kind == "word":
        return _parse_bare_word(token.data)
    return Scalar(token.data.decode("utf-8", "replace"), "template" if token.kind == "template" else "syntax", False)


def _parse_string(data: bytes) -> Scalar:
    single = data[:1] == b"'"
    inner = data[1:-1]
    if single:
        inner = inner.replace(b"\\'", b"'").replace(b'\\"', b'"').replace(b'"', b'\\"')
    problem = "single-quotes" if single else ""
    text = inner.decode("utf-8", "replace")
    if b"\\" in inner or any(byte < 0x20 for byte in inner):
        try:
            text = json.loads(f'"{text}"', strict=False)
        except ValueError:
            problem = problem or "escape"
        else:
            # A lone surrogate is not a character and can't be printed.
            text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        if not problem and any(byte < 0x20 for byte in inner):
            problem = "control-character"
    return Scalar(text, problem, correct=json.dumps(text, ensure_ascii=False) if problem else None)


def _parse_bare_word(data: bytes) -> Scalar:
    """Parse a word without quotes: a literal, a number, or a string as in Hjson and JSON5."""
    if data in _JSON_WORDS:
        return Scalar(_JSON_WORDS[data])
    text = data.decode("utf-8", "replace")
    if _number_regex().fullmatch(data):
        if not any(mark in data for mark in b".eE"):
            return Scalar(int(data)) if len(data) <= _MAX_DIGITS else Scalar(text, "number", False)
        return Scalar(float(data))
    if data in _PYTHON_WORDS:
        value = _PYTHON_WORDS[data]
        return Scalar(value, "python-literal", correct=json.dumps(value))
    if data in _JAVASCRIPT_NUMBERS:
        return Scalar(_JAVASCRIPT_NUMBERS[data], "not-a-number")
    if b"$" in data or (data.startswith(b"<") and data.endswith(b">")):
        return Scalar(text, "template", False)
    if data[:1] in b"+-.0123456789" and len(data) <= _MAX_DIGITS:
        return _parse_unusual_number(text)
    return Scalar(text, "unquoted", correct=json.dumps(text, ensure_ascii=False))


def _parse_unusual_number(text: str) -> Scalar:
    """Parse a number that isn't valid JSON, such as ``+1``, ``.5`` or ``0x10``."""
    value: int | float
    try:
        value = int(text, 0)
    except ValueError:
        try:
            value = float(text)
        except ValueError:
            return Scalar(text, "number", False)
    if value != value or value in (float("inf"), float("-inf")):
        return Scalar(text, "number", False)
    return Scalar(value, "number", correct=json.dumps(value))
