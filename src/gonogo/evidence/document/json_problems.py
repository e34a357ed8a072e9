"""Problems of a file that should be JSON, and which parsers reject them.

transformers and accelerate parse a config with Python's ``json``. DeepSpeed itself uses Hjson, which allows comments
and trailing commas but rejects duplicate keys, which ``json`` does not.
"""

from __future__ import annotations

import msgspec

from gonogo.evidence.source_file import Place
from gonogo.finding import Edit, Text, translated
from gonogo.finding.text import load_texts


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


TEMPLATE_REASON = translated("{text} is a placeholder that another program fills in before the run")
UNREADABLE_REASON = translated("the value can't be read: {text}")

_HJSON_ACCEPTED = frozenset({"byte-order-mark", "comment", "trailing-comma", "single-quotes", "unquoted-key"})
_JSON_ACCEPTED = frozenset({"duplicate-key", "not-a-number"})

_PROBLEM_MESSAGES: dict[str, Text] = load_texts(__file__)

_MAX_SHOWN = 40


def shorten_for_message(text: str) -> str:
    """A text shortened for quoting in a message."""
    text = " ".join(text.split())
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


def make_problem(
    kind: str, place: Place, *, line: int = 0, text: str = "", repair: Edit | None = None, hjson: bool = False
) -> ConfigProblem:
    """A problem of the given kind; ``text`` is quoted in its message, by default the text at its place.

    ``hjson`` says that Hjson accepts it at this place, though not everywhere.
    """
    return ConfigProblem(
        kind,
        place,
        _PROBLEM_MESSAGES[kind].format(text=shorten_for_message(text or place.text), line=line),
        json_accepts=kind in _JSON_ACCEPTED,
        hjson_accepts=hjson or kind in _HJSON_ACCEPTED,
        repair=repair,
    )
