"""What to look up in a package's releases for a failure: a name, an attribute, an argument, or the failing line."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gonogo.evidence.log.code_owner import distribution_of
from gonogo.finding.failure import CodePlace, RaisedException
from gonogo.trials.upstream.release import Release

_MAX_CANDIDATES = 3
"""At most this many packages are searched for a class or function of which only the name is known."""
_MIN_CODE = 12
"""Shorter lines of code are not looked up, because they occur everywhere."""
_OWN_CODE_OWNERS = ("package", "clone")


@dataclass(frozen=True)
class UpstreamQuestion:
    """One thing that a release may contain. ``kind``: ``name``, ``module``, ``attribute``, ``argument``, ``line``.

    ``owner`` is the module, class or function to look in; ``symbol`` is what to look for.
    """

    kind: str
    packages: tuple[str, ...]
    owner: str
    symbol: str
    module: str = ""

    def answer_for(self, release: Release) -> bool | None:
        """Whether the release contains it; None if that can't be determined."""
        return _ANSWERS[self.kind](self, release)


def questions_about_failure(
    chain: Sequence[RaisedException], versions: Mapping[str, str]
) -> Iterator[UpstreamQuestion]:
    """The questions that the exceptions of a failure raise, beginning with the last exception."""
    for raised in reversed(chain):
        message = raised.message
        beside = _candidate_packages(raised.frames, versions)
        if message.form == "not_importable" and message.subject and message.names:
            yield UpstreamQuestion("name", (distribution_of(message.subject),), message.subject, message.names[0])
        elif message.form == "no_module" and "." in message.subject:
            yield UpstreamQuestion("module", (distribution_of(message.subject),), "", message.subject)
        elif message.form == "no_attribute" and message.subject and message.names:
            yield from _attribute_questions(message.subject, message.names[0], beside, versions)
        elif message.form == "unexpected_keyword" and message.subject and message.names:
            yield UpstreamQuestion("argument", beside, message.subject.removesuffix("()"), message.names[0])
        if raised is chain[-1] and raised.frames and raised.frames[-1].owner in _OWN_CODE_OWNERS:
            place = raised.frames[-1]
            code = place.code.strip()
            if len(code) >= _MIN_CODE and place.function.rpartition(".")[2].isidentifier():
                yield UpstreamQuestion("line", (place.package,), place.function.rpartition(".")[2], code, place.module)


def _attribute_questions(
    subject: str, name: str, packages: tuple[str, ...], versions: Mapping[str, str]
) -> Iterator[UpstreamQuestion]:
    module = distribution_of(subject)
    if "." in subject or module in versions:
        yield UpstreamQuestion("name", (module,), subject, name)
    else:
        yield UpstreamQuestion("attribute", packages, subject, name)


def _candidate_packages(frames: Sequence[CodePlace], versions: Mapping[str, str]) -> tuple[str, ...]:
    """The packages that may be meant: those on the stack, innermost first, then others whose version is known."""
    found = [frame.package for frame in reversed(frames) if frame.owner in _OWN_CODE_OWNERS]
    usual = [name for name in ("transformers", "trl", "peft", "accelerate", "deepspeed") if name in versions]
    return tuple(dict.fromkeys((*found, *usual)))[:_MAX_CANDIDATES]


# -- answers


def _has_name(question: UpstreamQuestion, release: Release) -> bool | None:
    path = release.module(question.owner)
    if path is None:
        return False if release.has_package(question.owner.partition(".")[0]) else None
    return release.has_name(path, question.symbol)


def _has_module(question: UpstreamQuestion, release: Release) -> bool | None:
    if not release.has_package(question.symbol.partition(".")[0]):
        return None
    return release.has_package(question.symbol)


def _has_attribute(question: UpstreamQuestion, release: Release) -> bool | None:
    for _, node in release.definitions_of(question.owner.rpartition(".")[2]):
        if isinstance(node, ast.ClassDef):
            if question.symbol in release.attributes(node):
                return True
            # An attribute of another package's base class would have existed in the run, so it is missing.
            return None if release.method(node, "__getattr__") is not None else False
    return None


def _has_argument(question: UpstreamQuestion, release: Release) -> bool | None:
    owner, _, method = question.owner.rpartition(".")
    if owner:
        for _, node in release.definitions_of(owner.rpartition(".")[2]):
            if isinstance(node, ast.ClassDef):
                found = release.method(node, method)
                if found is not None:
                    names, takes_any = release.parameters(found)
                    return question.symbol in names or takes_any
                if method == "__init__":  # the fields of a dataclass
                    return question.symbol in release.attributes(node)
        return None
    answers = []
    for _, node in release.definitions_of(method):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names, takes_any = release.parameters(node)
            answers.append(question.symbol in names or takes_any)
    return answers[0] if len(set(answers)) == 1 else None


def _has_line(question: UpstreamQuestion, release: Release) -> bool | None:
    """Whether the function contains the line that the log shows."""
    path = release.module(question.module)
    if path is None:
        return False if release.has_package(question.module.partition(".")[0]) else None
    tree = release.tree(path)
    if tree is None:
        return None
    lines = release.text(path).splitlines()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == question.owner:
            body = lines[node.lineno - 1 : node.end_lineno]
            if any(line.strip() == question.symbol for line in body):
                return True
    return False


_ANSWERS = {
    "name": _has_name,
    "module": _has_module,
    "attribute": _has_attribute,
    "argument": _has_argument,
    "line": _has_line,
}
