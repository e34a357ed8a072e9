"""Symbols of compiled code in a log: those in a crash's stack trace, and undefined ones."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.patterns import Pattern, lazy_compile
from gonogo.finding.failure import NativeSymbol

_UNDEFINED_IN_LIBRARY_PATTERN = Pattern(r"\.so[\w.]*: undefined symbol: \S")
_UNDEFINED_SYMBOL_PATTERN = lazy_compile(r"(\S{1,400}?\.so[\w.]{0,20}): undefined symbol: (\S{1,600}?)(?:[,\s]|$)")
_NATIVE_STACK_PATTERN = Pattern(
    r'^\s*File "<unknown>", line 0, in \S|^\s*(?:frame )?#\d+:? .+ \(?(?:0x[0-9a-f]+ )?(?:in|from) \S+\.so'
)
_UNKNOWN_FILE_PATTERN = lazy_compile(r'File "<unknown>", line 0, in (.{1,300})$')
_FRAME_PATTERN = lazy_compile(
    r"#\d+:? (?:0x[0-9a-f]+ in )?(.{1,300}?) (?:\+ 0x[0-9a-f]+ )?\((?:0x[0-9a-f]+ )?(?:in|from) (\S+?)\)?$"
)
_MAX_SYMBOLS = 40


def native_symbols(log: FailureLog) -> Iterator[NativeSymbol]:
    """The C++ symbols that libraries failed to find, without duplicates, in the order of the log."""
    seen: set[str] = set()
    for pattern, parts in (
        (_UNDEFINED_IN_LIBRARY_PATTERN, (_UNDEFINED_SYMBOL_PATTERN,)),
        (_NATIVE_STACK_PATTERN, (_UNKNOWN_FILE_PATTERN, _FRAME_PATTERN)),
    ):
        for found in log.find_all(pattern):
            match = next((one for part in parts if (one := part.search(found.text))), None)
            if match is None:
                continue
            library, symbol = (
                match.groups()
                if pattern is _UNDEFINED_IN_LIBRARY_PATTERN
                else (_library_of_match(match), match.group(1))
            )
            if symbol in seen or len(seen) >= _MAX_SYMBOLS:
                continue
            seen.add(symbol)
            yield NativeSymbol(symbol.strip(), library, found.line.path, found.line.number)


def _library_of_match(match: object) -> str:
    groups = match.groups()  # type: ignore[attr-defined]
    return groups[1] if len(groups) > 1 else ""


def demangled_name(symbol: str) -> str:
    """The nested name of a mangled C++ symbol: ``c10::Error`` for ``_ZN3c105ErrorC2E…``."""
    position = next((len(start) for start in ("_ZNK", "_ZN", "_ZTVN", "_ZTIN") if symbol.startswith(start)), 0)
    names = []
    while position and position < len(symbol) and symbol[position].isdecimal():
        digits = len(symbol[position:]) - len(symbol[position:].lstrip("0123456789"))
        length = int(symbol[position : position + digits])
        position += digits
        names.append(symbol[position : position + length])
        position += length
    return "::".join(names) or symbol


_COMPILED_HERE_PATTERN = lazy_compile(r"torch_extensions|/deepspeed/ops/")
"""Folders of libraries that DeepSpeed or torch.utils.cpp_extension compiles on the machine itself."""
_FOREIGN_NAMES = ("c10", "at::", "torch", "caffe2", "cu", "nccl", "nv", "_Z")


def is_own_symbol(library: str, symbol: str) -> bool:
    """Whether a missing symbol is a function of the library itself, which was compiled on this machine."""
    name = demangled_name(symbol)
    return _COMPILED_HERE_PATTERN.search(library) is not None and not name.startswith(_FOREIGN_NAMES)


def cxx11_string_abi(symbol: str) -> str:
    """The C++ ABI of a symbol with a std::string: ``"old"``, ``"new"``, or ``""`` if it has none."""
    if "__cxx1112basic_string" in symbol or "NSt7__cxx11" in symbol:
        return "new"
    return "old" if _OLD_STRING_ABI_PATTERN.search(symbol) else ""


_OLD_STRING_ABI_PATTERN = lazy_compile(r"(?:E|R|K|S\d?_|j|i|b|PKc)Ss(?:$|[A-Zb-z_])|RKSs|E[A-Z]?Ss")
