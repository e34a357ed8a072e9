"""Tells whether ranks ended at what a finding of the files names: a place in the code, a setting, packages."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property

from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.rank_ends import RankFailure
from gonogo.evidence.rehearsal.chain import ChainedException, package_of_file
from gonogo.evidence.rehearsal.failures import is_stdlib_frame
from gonogo.evidence.script.flows.value_flow import LineRange, statements_behind_backward, statements_behind_losses
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Certainty, Finding, Severity, Span
from gonogo.finding.frame import Frame
from gonogo.hazards.hazard import Hazard

_SIMPLE_STATEMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return, ast.Raise, ast.Assert, ast.Delete)
# Where the libraries read and validate a DeepSpeed config.
_READS_CONFIG_PATTERN = re.compile(
    r"/deepspeed/runtime/(?:zero/)?(?:\w*config\w*)\.py$|/transformers/(?:integrations/)?deepspeed\.py$"
    r"|/accelerate/utils/(?:deepspeed|dataclasses)\.py$|/pydantic/main\.py$"
)
_NAME_BEFORE_VERSION_PATTERN = re.compile(r"([A-Za-z][\w.-]*?)(?:[<>=!~]=?| )\d")
_MESSAGE_WORD_PATTERN = re.compile(r"[\w./:-]+")
_INTERFACE_ERROR_TYPES = ("ImportError", "ModuleNotFoundError", "AttributeError", "TypeError", "NameError")
_MIN_WORD_LENGTH = 5
"""Shorter values (auto, cpu, true) are too common to identify a setting."""


class FindingPlaces:
    """The places and packages that findings name, to be compared with those at which ranks failed."""

    def __init__(self, sources: Mapping[str, SourceFile], base: str, packages: Collection[str]) -> None:
        self._sources = sources
        self._base = base
        self._packages = packages
        self._statements: dict[str, list[tuple[int, int]]] = {}
        self._flows: dict[tuple[str, int], list[LineRange]] = {}

    def explains(self, finding: Finding, hazard: Hazard, failure: RankFailure) -> Certainty | None:
        """How certain it is that ranks ended because of what the finding names; None if they did not.

        It is as certain as the finding, with one exception: if an interface between the very packages failed that the
        finding calls incompatible, it is certain, because two kinds of evidence agree.
        """
        if finding.severity is not Severity.ERROR or finding.certainty is Certainty.POSSIBLE:
            return None
        if _checks_environment(hazard) and (packages := self._count_packages_at_interface(finding, failure)):
            return Certainty.CERTAIN if packages > 1 else finding.certainty
        at = any(
            self._stack_contains_place(span, finding.certainty, failure) or self._is_named_in_exception(span, failure)
            for span in finding.spans
        )
        if at or self._is_config_read_failure(finding, failure) or self._is_part_of_failed_loss(finding, failure):
            return finding.certainty
        return None

    def _is_part_of_failed_loss(self, finding: Finding, failure: RankFailure) -> bool:
        """Whether a backward failed whose loss contains the place of a finding that is certain."""
        if finding.certainty is not Certainty.CERTAIN or not finding.spans[:1] or not self._is_python(finding.spans[0]):
            return False
        place = finding.spans[0]
        return any(
            path == place.path and first <= place.line <= last
            for exception in failure.chain
            for path, first, last in self._loss_statements(exception)
        )

    @staticmethod
    def _is_python(span: Span) -> bool:
        return span.path.endswith(".py")

    def _loss_statements(self, exception: ChainedException) -> list[LineRange]:
        """The statements that compute the loss whose backward raised; none if no backward raised."""
        last = exception.last_user_frame
        inner = exception.frames[exception.frames.index(last) + 1 :] if last is not None else ()
        if last is None or not exception.type:
            return []
        path = next((name for name in self._sources if self._is_same_file(name, last)), None)
        if path is None:
            return []
        if (last.path, last.line) not in self._flows:
            flow = statements_behind_backward(self._parsed_trees, path, last.line)
            if not flow and any(frame.function == "backward" for frame in inner):
                flow = statements_behind_losses(self._parsed_trees)
            self._flows[last.path, last.line] = flow
        return self._flows[last.path, last.line]

    @cached_property
    def _parsed_trees(self) -> dict[str, ast.Module]:
        parsed = ((path, _parse_source(source)) for path, source in self._sources.items() if path.endswith(".py"))
        return {path: tree for path, tree in parsed if tree is not None}

    def _stack_contains_place(self, span: Span, certainty: Certainty, failure: RankFailure) -> bool:
        """Whether a stack contains the place: in the innermost user frame, or in any if the finding is certain."""
        if not span.path.endswith(".py"):
            return False
        for exception in failure.chain:
            last = exception.last_user_frame
            frames = [frame for frame in exception.frames if frame.owner == "user"]
            if certainty is not Certainty.CERTAIN:
                frames = [last] if last is not None else []
            if any(self._span_covers_frame(span, frame) for frame in frames):
                return True
        return False

    def _span_covers_frame(self, span: Span, frame: Frame) -> bool:
        if not self._is_same_file(span.path, frame):
            return False
        first, last = self._statement_lines(span)
        return first <= frame.line <= last

    def _is_same_file(self, path: str, frame: Frame) -> bool:
        """Whether a frame is in that file, or in a copy of it that has the same name and the same line."""
        if os.path.realpath(frame.path) == os.path.realpath(os.path.join(self._base, path)):
            return True
        source = self._sources.get(path)
        if source is None or f"/{frame.path}".replace("\\", "/").rpartition("/")[2] != os.path.basename(path):
            return False
        here = source.line_bytes(frame.line).decode("utf-8", "replace").strip()
        return bool(frame.text) and here.startswith(frame.text.strip()[:80])

    def _statement_lines(self, span: Span) -> tuple[int, int]:
        """The lines of the statement at a place: a traceback names the statement's first line, or an argument's."""
        if span.path not in self._statements:
            self._statements[span.path] = list(_simple_statement_lines(self._sources.get(span.path)))
        end = max(span.end_line, span.line)
        around = [lines for lines in self._statements[span.path] if lines[0] <= span.line <= lines[1]]
        first, last = max(around, default=(span.line, end))
        return first, max(last, end)

    def _is_named_in_exception(self, span: Span, failure: RankFailure) -> bool:
        """Whether the exception names the setting, option or value at that place."""
        if span.path.endswith(".py"):
            return False
        if failure.reading is not None:
            return os.path.realpath(failure.reading) == os.path.realpath(os.path.join(self._base, span.path))
        words = set(_MESSAGE_WORD_PATTERN.findall(failure.message))
        return any(word in words for word in _distinctive_words(self._text_at(span)))

    def _text_at(self, span: Span) -> str:
        """The text at a place, preceded by its key or option."""
        begin = span.column - 1
        end = span.end_column - 1 if span.end_line in (0, span.line) and span.end_column else None
        key = re.search(r"[\"']?([\w.-]+)[\"']?\s*[:=]\s*$|(--[\w-]+)[ =]+[\"']?$", span.text[:begin])
        return f"{key[1] or key[2] if key else ''} {span.text[begin:end]}"

    def _is_config_read_failure(self, finding: Finding, failure: RankFailure) -> bool:
        """Whether reading a DeepSpeed config raised the exception, and the finding is about a value in it."""
        in_config = any(span.path.endswith((".json", ".yaml", ".yml")) for span in finding.spans)
        if finding.certainty is not Certainty.CERTAIN or not in_config:
            return False
        last = next((_raising_frame(exception) for exception in reversed(failure.chain) if exception.frames), None)
        return last is not None and _READS_CONFIG_PATTERN.search(last.path) is not None

    def _count_packages_at_interface(self, finding: Finding, failure: RankFailure) -> int:
        """How many of the finding's packages are at the interface that failed: two (or the only one), else 0."""
        told_of = {
            canonical_package_name(name) for name in _NAME_BEFORE_VERSION_PATTERN.findall(finding.cause.en)
        } & set(self._packages)
        wanted = min(len(told_of), 2)
        found = [
            len(told_of & set(_packages_at_raise(exception)))
            for exception in failure.chain
            if _is_interface_error(exception)
        ]
        return wanted if wanted and max(found, default=0) >= wanted else 0


def _checks_environment(hazard: Hazard) -> bool:
    return type(hazard).in_environment is not Hazard.in_environment


def _is_interface_error(exception: ChainedException) -> bool:
    """Whether incompatible versions raise such an error: a missing module, attribute or argument."""
    if exception.type.rpartition(".")[2] in _INTERFACE_ERROR_TYPES:
        return True
    return any(frame.function == "<module>" and frame.owner != "user" for frame in exception.frames)


def _packages_at_raise(exception: ChainedException) -> Iterator[str]:
    """The packages between which an exception was raised: those in its message, and the stack's two innermost."""
    for word in _MESSAGE_WORD_PATTERN.findall(exception.message):
        yield canonical_package_name(re.split(r"[.:]", word)[0])
    found: list[str] = []
    for frame in reversed(exception.frames):
        if is_stdlib_frame(frame):
            continue
        package = package_of_file(frame.path)
        if package is None:
            break
        if package not in found:
            found.append(package)
        if len(found) == 2:
            break
    yield from found


def _raising_frame(exception: ChainedException) -> Frame | None:
    return next((frame for frame in reversed(exception.frames) if not is_stdlib_frame(frame)), None)


def _distinctive_words(text: str) -> Iterator[str]:
    """The words at a place by which an exception would refer to it: keys, options, paths, values of some length."""
    for word in _MESSAGE_WORD_PATTERN.findall(text):
        plain = word.lstrip("-").strip(".:")
        for one in dict.fromkeys((plain, plain.replace("-", "_"), word)):
            if (
                len(one) >= _MIN_WORD_LENGTH
                and not one.isdecimal()
                and (len(one) >= 10 or re.search(r"[_./]|[a-z][A-Z]", one))
            ):
                yield one


def _simple_statement_lines(source: SourceFile | None) -> Iterator[tuple[int, int]]:
    tree = _parse_source(source)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, _SIMPLE_STATEMENTS):
            yield node.lineno, node.end_lineno or node.lineno


def _parse_source(source: SourceFile | None) -> ast.Module | None:
    try:
        return ast.parse(source.text) if source is not None else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
