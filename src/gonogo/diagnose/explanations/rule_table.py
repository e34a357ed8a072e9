"""The rules of ``rules.toml``: conditions on an exception, and the sentences that explain it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter

import msgspec

from gonogo.diagnose.explanations.explanation import (
    Explanation,
    calling_frame,
    code_line,
    first_explanation,
    nearest_package,
    package_with_version,
    raising_frame,
)
from gonogo.evidence.patterns import cached_lazy_pattern
from gonogo.finding import Text
from gonogo.finding.failure import RaisedException
from gonogo.hazards.build_cache import toml_values

RULES_FILE = Path(__file__).with_name("rules.toml")
_MAX_LENGTH = 1000
"""Maximum length of the message's part that rules examine."""


class ExplanationRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule of ``rules.toml``: conditions, all of which have to hold, and what they mean.

    The sentences may name any group of the conditions' patterns, any value of :func:`_placeholder_values`, and any of
    ``clauses``. A rule that names something which this exception doesn't show, and has no ``otherwise`` for it, does
    not apply.
    """

    because: Text
    change: Text | None = None
    types: tuple[str, ...] = ()
    """Types of exceptions."""
    form: str = ""
    """The message's form (``gonogo.finding.failure.Message``)."""
    says: str = ""
    """A pattern of the message; like those below in the syntax of :mod:`re`."""
    subject: str = ""
    """A pattern of the message's subject."""
    name: str = ""
    """A pattern of the first name in the message."""
    code: str = ""
    """A pattern of the line that raised it."""
    path: str = ""
    """A pattern of the path of that line's file."""
    through: str = ""
    """A pattern of the path of any frame; the innermost that matches counts."""
    lower: tuple[str, ...] = ()
    """Groups that are shown in lower case."""
    otherwise: dict[str, Text] = {}
    """Words for a value that the traceback does not show."""
    clauses: dict[str, Text] = {}
    """Parts of a sentence that are left out if one of their own values is not known."""

    def explain(self, exception: RaisedException) -> Explanation:
        """The reason and what to change; (None, None) if the rule doesn't apply."""
        groups = self._groups(exception)
        if groups is None:
            return None, None
        values: dict[str, Text | str] = {**self.otherwise, **_placeholder_values(exception), **groups}
        for name, clause in self.clauses.items():
            values[name] = clause.format(**values) if placeholder_names(clause) <= values.keys() else ""
        needed = placeholder_names(self.because) | (
            placeholder_names(self.change) if self.change is not None else set()
        )
        if not needed <= values.keys():
            return None, None
        return self.because.format(**values), self.change.format(**values) if self.change is not None else None

    def _groups(self, exception: RaisedException) -> dict[str, str] | None:
        """The named groups of all patterns; None if a condition doesn't hold."""
        message = exception.message
        if (self.types and exception.type not in self.types) or (self.form and message.form != self.form):
            return None
        groups: dict[str, str] = {}
        for pattern, texts in (
            (self.says, lambda: (message.text[:_MAX_LENGTH].strip(),)),
            (self.subject, lambda: (message.subject,)),
            (self.name, lambda: message.names[:1]),
            (self.code, lambda: (code_line(raising_frame(exception)),)),
            (self.path, lambda: _frame_paths(exception)[:1]),
            (self.through, lambda: _frame_paths(exception)),
        ):
            if not pattern:
                continue
            search = cached_lazy_pattern(pattern).search
            found = next((match for text in texts() if (match := search(text))), None)
            if found is None:
                return None
            groups |= {name: text for name, text in found.groupdict().items() if text}
        return groups | {name: groups[name].lower() for name in self.lower if name in groups}


def explain_by_rule(exception: RaisedException) -> Explanation:
    """What the first rule that applies says; (None, None) if none does."""
    return first_explanation([rule.explain for rule in load_rules()], exception)


@cache
def load_rules() -> tuple[ExplanationRule, ...]:
    """All rules of ``rules.toml``, in the file's order."""
    return msgspec.msgpack.decode(toml_values(RULES_FILE), type=dict[str, tuple[ExplanationRule, ...]])["rules"]


def placeholder_names(text: Text) -> set[str]:
    """The names of the placeholders in a sentence, in either language."""
    return {name for sentence in (text.en, text.zh) for _, name, _, _ in Formatter().parse(sentence) if name}


def _placeholder_values(exception: RaisedException) -> dict[str, str]:
    """The values that a rule's sentences may name, as far as they are known."""
    return {name: value for name, value in _iter_placeholder_values(exception) if value}


def _iter_placeholder_values(exception: RaisedException) -> Iterator[tuple[str, str]]:
    """The names and values of all placeholders, also of those without a value."""
    at, caller, message = raising_frame(exception), calling_frame(exception), exception.message
    yield "type", exception.type
    yield "message", " ".join(message.text.split())[:300]
    yield "name", message.names[0] if message.names else ""
    yield "line", " ".join(code_line(at)[:160].split())
    yield "function", at.function if at is not None else ""
    yield "package", at.package if at is not None else ""
    yield "release", package_with_version(at)
    yield "nearest_package", nearest_package(exception)
    yield "caller", caller.function if caller is not None else ""
    yield "caller_package", caller.package if caller is not None else ""


def _frame_paths(exception: RaisedException) -> list[str]:
    """The files of the frames, innermost first."""
    return [frame.path.replace("\\", "/") for frame in reversed(exception.frames)]
