"""Problems of a file that should be JSON, and which parsers reject them.

transformers and accelerate parse a config with Python's ``json``. DeepSpeed itself uses Hjson, which allows comments
and trailing commas but rejects duplicate keys, which ``json`` does not.
"""

from __future__ import annotations

import msgspec

from gonogo.evidence.source_file import Place
from gonogo.finding import Edit, Text, translated


class ConfigProblem(msgspec.Struct, frozen=True):
    """A problem in a config's text. ``repair`` fixes it if a single edit is enough."""

    kind: str
    place: Place
    message: Text
    json_accepts: bool = False
    """Whether Python's ``json`` (transformers, accelerate) accepts it."""
    hjson_accepts: bool = False
    """Whether Hjson (DeepSpeed's own parser) accepts it with the intended meaning."""
    repair: Edit | None = None


TEMPLATE_REASON = translated("{text} is filled in by another program before the run")
UNREADABLE_REASON = translated("can't read its value: {text}")

_HJSON_ACCEPTED = frozenset({"byte-order-mark", "comment", "trailing-comma", "single-quotes", "unquoted-key"})
_JSON_ACCEPTED = frozenset({"duplicate-key", "not-a-number"})

_PROBLEM_MESSAGES = {
    "encoding": translated("the file is not UTF-8 text; save it as UTF-8"),
    "byte-order-mark": translated("the file starts with a byte-order mark (BOM), which Python's json rejects"),
    "empty": translated("the file is empty"),
    "not-an-object": translated("a DeepSpeed config is one JSON object: {{ … }}"),
    "comment": translated("JSON doesn't allow comments"),
    "trailing-comma": translated("JSON doesn't allow a trailing comma"),
    "duplicate-key": translated(
        '"{text}" appears twice in this object (first on line {line}); DeepSpeed rejects that, while '
        "Python's json takes the last one"
    ),
    "single-quotes": translated("JSON strings need double quotes"),
    "unquoted-key": translated("JSON keys need double quotes: {text}"),
    "unquoted": translated("JSON strings need double quotes: {text}"),
    "python-literal": translated("{text} is Python; JSON uses true, false and null"),
    "not-a-number": translated("{text} is not valid JSON, though Python's json accepts it"),
    "number": translated("not a valid JSON number: {text}"),
    "template": translated("{text} is a placeholder that another program must fill in"),
    "escape": translated("invalid escape sequence: {text}"),
    "control-character": translated("a tab or control character within a string; JSON uses \\t"),
    "unclosed-string": translated("this string has no closing quote"),
    "missing-comma": translated("a comma is missing before {text}"),
    "missing-colon": translated("a colon is missing after the key {text}"),
    "missing-value": translated("the key {text} has no value"),
    "unclosed": translated("this bracket is never closed"),
    "mismatched": translated("{text} has no matching opening bracket"),
    "extra": translated("extra data after the end of the object"),
    "nesting": translated("nested too deeply"),
    "too-long": translated("the file is too long for a config; the rest was not read"),
    "syntax": translated("unexpected: {text}"),
}

_MAX_SHOWN = 40


def shortened(text: str) -> str:
    """A text shortened for quoting in a message."""
    text = " ".join(text.split())
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


def problem_of(
    kind: str, place: Place, *, line: int = 0, text: str = "", repair: Edit | None = None, hjson: bool = False
) -> ConfigProblem:
    """A problem of the given kind; ``text`` is quoted in its message, by default the text at its place.

    ``hjson`` says that Hjson accepts it at this place, though not everywhere.
    """
    return ConfigProblem(
        kind,
        place,
        _PROBLEM_MESSAGES[kind].format(text=shortened(text or place.text), line=line),
        json_accepts=kind in _JSON_ACCEPTED,
        hjson_accepts=hjson or kind in _HJSON_ACCEPTED,
        repair=repair,
    )
