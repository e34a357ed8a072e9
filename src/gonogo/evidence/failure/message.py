"""Parse an exception's message: its form, and the names, numbers and sizes in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.log.code_owner import DISTRIBUTION_BY_MODULE
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding.failure import Message, PackageMention, Quantity

_MAX_LENGTH = 6000
"""Maximum length of a message that is parsed; the rest is usually a list of processes, keys or shapes."""
_MAX_NAMES = 60

_CALLEE = r"([A-Za-z_][\w.<>]{0,200})\(\)"
_UNEXPECTED_KEYWORD_PATTERN = lazy_compile(rf"{_CALLEE} got an unexpected keyword argument '([^']{{1,80}})'")
_MISSING_ARGUMENTS_PATTERN = lazy_compile(
    rf"{_CALLEE} missing \d+ required (?:positional|keyword-only) arguments?: (.{{1,400}}?)(?:\n|$)"
)
_ARGUMENT_COUNT_PATTERN = lazy_compile(
    rf"{_CALLEE} takes (?:from \d+ to )?(?:exactly )?(\d+) positional arguments? but (\d+)"
)
_NO_ATTRIBUTE_PATTERN = lazy_compile(
    r"(?:'([\w.]{1,120})' object|module '?([\w.]{1,200}?)'?|type object '([\w.]{1,120})') has no attribute "
    r"'?(\w{1,120})'?"
)
_CONFIG_KEY_PATTERN = lazy_compile(r"Key '([\w.]{1,80})' is not in struct")
_NOT_IMPORTABLE_PATTERN = lazy_compile(
    r"cannot import name '?(\w{1,120})'? from (?:partially initialized module )?'([\w.]{1,200})'"
)
_MISSING_MODULE_PATTERN = lazy_compile(r"No module named '?([\w.]{1,200})'?")
_UNDEFINED_SYMBOL_PATTERN = lazy_compile(r"(\S{1,400}?\.so[\w.]{0,20}): undefined symbol: (\S{1,600})")
_NOT_DEFINED_PATTERN = lazy_compile(r"name '(\w{1,120})' is not defined")
_STATE_DICT_PATTERN = lazy_compile(r"(?:Missing key\(s\)|Unexpected key\(s\)) in state_dict")
_MISSING_KEYS_PATTERN = lazy_compile(r"Missing key\(s\) in state_dict: ((?:\s*\"[^\"]{1,300}\",?)+)")
_UNEXPECTED_KEYS_PATTERN = lazy_compile(r"Unexpected key\(s\) in state_dict: ((?:\s*\"[^\"]{1,300}\",?)+)")
_NOT_IN_CHECKPOINT_PATTERN = lazy_compile(r"Missing key in checkpoint state_dict: ['\"]?(\S{1,400}?)['\"]?\.?(?:\s|$)")
_QUOTED_PATTERN = lazy_compile(r"[\"'`]([^\"'`\n]{1,300})[\"'`]")
_NOT_DIVISIBLE_PATTERN = lazy_compile(
    r"(?i)(?:not |be )(?:evenly )?(?:divisible|divided|a multiple)|(?:must|should) divide|multiple of"
    r"|(?:cannot|can't|can not) be (?:evenly )?split (?:by|into|over|across|among)"
)
_SIZE_MISMATCH_PATTERN = lazy_compile(
    r"(?i)size mismatch|must match the (?:existing )?size|shapes? (?:cannot|can't|mismatch|do(?:es)? not match)"
    r"|shape mismatch|size of tensor a|cannot be multiplied|do not match: |contraction dimension"
    r"|is invalid for input of size"
)
_MISSING_FILE_PATTERN = lazy_compile(r"No such file or directory: '?([^'\n]{1,400})'?")

_VERSION = r"\d{1,4}(?:\.\w{1,12}){0,4}(?:[.+-]?\w[\w.]{0,30})?"
_REQUIRED_VERSION_PATTERN = lazy_compile(
    rf"\b([A-Za-z][\w-]{{1,40}}(?:\[[\w,]{{1,60}}\])?) ?((?:(?:[<>=!~]=|[<>]) ?v?{_VERSION}(?:\.\*)?,? ?){{1,8}})"
)
_FOUND_VERSION_PATTERN = lazy_compile(
    rf"(?:but (?:found|you have|got)|found|you have|installed(?: version)?(?: is|:)?|current(?:ly)?(?: is)?) "
    rf"(?:package )?`?([A-Za-z][\w-]{{1,40}})(?:==| version | )v?({_VERSION})"
)
_STATED_VERSION_PATTERN = lazy_compile(
    rf"\b([A-Za-z][\w-]{{1,40}}) (?:version|release)s?:? ?(?:is |of )?v?({_VERSION})"
)
_SYMBOL_PATTERN = lazy_compile(
    r"(?<![\w./])([A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)+|[A-Za-z_]\w*_\w+|[A-Z][a-z0-9]+[A-Z]\w+)(?![\w/])"
)
_SETTING_PATTERN = lazy_compile(r"(?<![\w-])--([A-Za-z][\w.-]{1,80})|\b([A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+)\b")
_ASSIGNMENT_PATTERN = lazy_compile(r"\b([a-z][a-z0-9]*(?:_[a-z0-9]+)+)`?'?\"? ?(?:=|:)=? ?[\w.'\"(\[-]")
_PATH_PATTERN = lazy_compile(r"(?<![\w:/.])((?:~|\.{1,2})?/[\w.@+~-]+(?:/[\w.@+~=-]+)*/?|[A-Za-z]:\\[\w.\\ -]{1,200})")
_SHAPE_PATTERN = lazy_compile(
    r"torch\.Size\(\[([\d, ]{0,120})\]\)|(?<![\w\]])[\[(]((?:\d{1,12}, ?)*\d{1,12},?)[\])]|\b(\d{1,9}(?:x\d{1,9})+)\b"
)
_DTYPE_PATTERN = lazy_compile(
    r"\btorch\.(bfloat16|float8_\w+|float16|float32|float64|half|float|double|int4|int8|int16|int32|int64|uint8|long|bool)\b"
    r"|\b(?:c10::)?(BFloat16|Half|Float8_\w+|Float|Double|Long)\b"
)
_DTYPE_NAMES = {"bfloat16": "bfloat16", "half": "float16", "float": "float32", "double": "float64", "long": "int64"}
_DEVICE_PATTERN = lazy_compile(r"\b((?:cuda|npu|xpu|hpu|musa|mps|meta)(?::\d{1,3})?|cpu)\b")
_SIZE_PATTERN = lazy_compile(r"(?<![\w.])(\d{1,20}(?:[.,]\d{1,20})?) ?([KMGT]i?B|[KMGT]iB|bytes)\b")
_DURATION_PATTERN = lazy_compile(
    r"(?<![\w.])(\d{1,15}(?:\.\d{1,9})?) ?(milliseconds|msec|ms|seconds|secs?|s|minutes|mins?|hours?|h)\b"
)
_MILLISECONDS_PATTERN = lazy_compile(r"\((?:ms|milliseconds)\)=(\d{1,15})")
_INTEGER_PATTERN = lazy_compile(r"(?<![\w.+-])-?\d{1,18}(?![\w]|\.\d)")
_UNIT_BYTES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "b": 1}
_SECONDS_PER_UNIT = {"ms": 0.001, "mi": 60.0, "se": 1.0, "s": 1.0, "h": 3600.0, "ho": 3600.0}


class _ParsedForm(NamedTuple):
    """The form of an exception message (``no attribute``, ``shape mismatch`` …), its subject and names."""

    form: str
    subject: str = ""
    names: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()


def parse_message(type_: str, text: str) -> Message:
    """Parse the message of an exception of that type."""
    looked_at = text[:_MAX_LENGTH]
    form = _parse_form(type_, looked_at)
    shapes, rest = _extract_shapes(looked_at)
    quantities, rest = _extract_quantities(rest)
    packages = tuple(_package_mentions(looked_at))
    # Digits in versions and paths are not numbers of the message.
    for pattern in (
        _REQUIRED_VERSION_PATTERN,
        _FOUND_VERSION_PATTERN,
        _STATED_VERSION_PATTERN,
        _PATH_PATTERN,
        _DEVICE_PATTERN,
    ):
        rest = pattern.sub(" ", rest)
    return Message(
        text=text,
        form=form.form,
        subject=form.subject,
        names=form.names,
        unexpected=form.unexpected,
        packages=packages,
        symbols=_unique_names(match.group(1) for match in _SYMBOL_PATTERN.finditer(looked_at)),
        keywords=form.names if form.form in ("unexpected_keyword", "missing_arguments") else (),
        settings=_unique_names(
            [
                *(match.group(1) or match.group(2) for match in _SETTING_PATTERN.finditer(looked_at)),
                *(match.group(1) for match in _ASSIGNMENT_PATTERN.finditer(looked_at)),
            ]
        ),
        paths=_unique_names(match.group(1) for match in _PATH_PATTERN.finditer(looked_at)),
        shapes=shapes,
        dtypes=_unique_names(
            _normalize_dtype(match.group(1) or match.group(2)) for match in _DTYPE_PATTERN.finditer(looked_at)
        ),
        devices=_unique_names(match.group(1) for match in _DEVICE_PATTERN.finditer(looked_at)),
        quantities=quantities,
        numbers=tuple(dict.fromkeys(int(match.group()) for match in _INTEGER_PATTERN.finditer(rest)))[:_MAX_NAMES],
    )


def _parse_form(type_: str, text: str) -> _ParsedForm:
    for pattern, form in _FORM_PATTERNS:
        if found := pattern.search(text):
            return form(found)
    if _STATE_DICT_PATTERN.search(text):
        missing, unexpected = _MISSING_KEYS_PATTERN.search(text), _UNEXPECTED_KEYS_PATTERN.search(text)
        return _ParsedForm(
            "state_dict",
            _text_after(text, "loading state_dict for "),
            _quoted_names(missing.group(1) if missing else ""),
            _quoted_names(unexpected.group(1) if unexpected else ""),
        )
    if found := _NOT_IN_CHECKPOINT_PATTERN.search(text):
        return _ParsedForm("checkpoint_key", "", (found.group(1),))
    if type_ == "KeyError":
        # A KeyError's message is the repr of the key and nothing else.
        return _ParsedForm("missing_key", "", (text.strip().strip("'\""),))
    if _NOT_DIVISIBLE_PATTERN.search(text):
        return _ParsedForm("not_divisible")
    return _ParsedForm("size_mismatch") if _SIZE_MISMATCH_PATTERN.search(text) else _ParsedForm("")


_FORM_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], _ParsedForm]], ...] = (
    (_UNEXPECTED_KEYWORD_PATTERN, lambda m: _ParsedForm("unexpected_keyword", m.group(1), (m.group(2),))),
    (_MISSING_ARGUMENTS_PATTERN, lambda m: _ParsedForm("missing_arguments", m.group(1), _quoted_names(m.group(2)))),
    (_ARGUMENT_COUNT_PATTERN, lambda m: _ParsedForm("argument_count", m.group(1), (m.group(2), m.group(3)))),
    (_UNDEFINED_SYMBOL_PATTERN, lambda m: _ParsedForm("undefined_symbol", m.group(1), (m.group(2),))),
    (_NOT_IMPORTABLE_PATTERN, lambda m: _ParsedForm("not_importable", m.group(2), (m.group(1),))),
    (_MISSING_MODULE_PATTERN, lambda m: _ParsedForm("no_module", m.group(1))),
    (
        _NO_ATTRIBUTE_PATTERN,
        lambda m: _ParsedForm("no_attribute", m.group(1) or m.group(2) or m.group(3), (m.group(4),)),
    ),
    (_CONFIG_KEY_PATTERN, lambda m: _ParsedForm("missing_key", "config", (m.group(1),))),
    (_NOT_DEFINED_PATTERN, lambda m: _ParsedForm("not_defined", "", (m.group(1),))),
    (_MISSING_FILE_PATTERN, lambda m: _ParsedForm("no_file", m.group(1))),
)


def _text_after(text: str, words: str) -> str:
    """The text between ``words`` and the next colon."""
    return text.partition(words)[2].partition(":")[0].strip()[:120]


def _quoted_names(text: str) -> tuple[str, ...]:
    return _unique_names(match.group(1) for match in _QUOTED_PATTERN.finditer(text))


def _unique_names(names: Iterator[str] | list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name))[:_MAX_NAMES]


def _package_mentions(text: str) -> Iterator[PackageMention]:
    """The packages that a message names with a version."""
    required: dict[str, str] = {}
    there: dict[str, str] = {}
    for match in _REQUIRED_VERSION_PATTERN.finditer(text):
        name, specifier = _distribution_name(match.group(1)), match.group(2).replace(" ", "").strip(",")
        if specifier.startswith("==") and _is_installed_version(text, match.start()):
            there.setdefault(name, specifier.removeprefix("=="))
        else:
            required.setdefault(name, specifier)
    for pattern in (_FOUND_VERSION_PATTERN, _STATED_VERSION_PATTERN):
        for match in pattern.finditer(text):
            there.setdefault(_distribution_name(match.group(1)), match.group(2))
    for name in dict.fromkeys((*required, *there)):
        if name in _NON_PACKAGE_WORDS or name.isdecimal():
            continue
        yield PackageMention(name, there.get(name, ""), required.get(name, ""))


# fmt: off
_NON_PACKAGE_WORDS = frozenset((
    "version", "versions", "than", "is", "be", "must", "rank", "size", "dim", "step", "tensor", "python-version",
    "expected", "got", "at", "of", "and", "or", "not", "the", "needs", "cuda-version", "capability", "sm", "tokens",
    "found", "requires", "require", "least", "dimension",
))
# fmt: on


def _is_installed_version(text: str, start: int) -> bool:
    """Whether the words before a version say that it is the installed one, not the required one."""
    before = text[max(start - 24, 0) : start].lower()
    return any(word in before for word in ("found ", "have ", "got ", "installed "))


def _distribution_name(name: str) -> str:
    name = name.partition("[")[0]
    return DISTRIBUTION_BY_MODULE.get(name, canonical_package_name(name))


def parse_shape_sizes(text: str) -> list[int]:
    """The sizes of a shape as printed, with -1 where one is left open: ``16, -1, 128``."""
    return [int(size) for size in re.findall(r"-?\d{1,18}", text)]


def _extract_shapes(text: str) -> tuple[tuple[tuple[int, ...], ...], str]:
    """The shapes, and the text without them."""
    shapes = []
    for match in _SHAPE_PATTERN.finditer(text):
        shape = tuple(parse_shape_sizes(match.group(1) or match.group(2) or match.group(3) or ""))
        # A single number in parentheses is a remark, not a shape.
        if match.group(1) is not None or len(shape) > 1 or (match.group(2) and match.group(0)[0] == "["):
            shapes.append(shape)
    rest = _SHAPE_PATTERN.sub(
        lambda match: " " if match.group(1) or "," in match.group(0) or match.group(3) else match.group(0), text
    )
    return tuple(dict.fromkeys(shapes))[:_MAX_NAMES], rest


def _extract_quantities(text: str) -> tuple[tuple[Quantity, ...], str]:
    """The sizes (in bytes) and durations (in seconds), and the text without them."""
    found = []
    for match in _SIZE_PATTERN.finditer(text):
        unit = match.group(2)
        found.append(
            (match.start(), Quantity(_parse_number(match.group(1)) * _UNIT_BYTES[unit[0]], "bytes", match.group(0)))
        )
    for match in _DURATION_PATTERN.finditer(text):
        unit = match.group(2)
        factor = _SECONDS_PER_UNIT["ms" if unit.startswith(("ms", "milli")) else unit[:2]]
        found.append((match.start(), Quantity(_parse_number(match.group(1)) * factor, "seconds", match.group(0))))
    found += [
        (match.start(), Quantity(int(match.group(1)) / 1000, "seconds", f"{match.group(1)} ms"))
        for match in _MILLISECONDS_PATTERN.finditer(text)
    ]
    rest = text
    for pattern in (_SIZE_PATTERN, _DURATION_PATTERN, _MILLISECONDS_PATTERN):
        rest = pattern.sub(" ", rest)
    return tuple(quantity for _, quantity in sorted(found, key=lambda one: one[0]))[:_MAX_NAMES], rest


def _parse_number(text: str) -> float:
    return float(text.replace(",", "."))


def _normalize_dtype(name: str) -> str:
    return _DTYPE_NAMES.get(name.lower(), name.lower())
