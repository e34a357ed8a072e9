"""Opens logs as byte streams: files, a folder or stdin; plain or compressed; in any encoding."""

from __future__ import annotations

import bz2
import codecs
import errno
import gzip
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from gonogo.evidence.dumps.flight_recorder import is_flight_recorder_dump
from gonogo.evidence.paths import is_file, is_folder, open_for_reading
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding import Skipped, Text, UserError, translated

CHUNK_BYTES = 1 << 20
"""Bytes read at a time."""

STDIN = "-"

# Other contents of a run's folder: weights, data and images, which may take terabytes.
# fmt: off
_NON_LOG_SUFFIXES = frozenset((
    ".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".onnx", ".gguf", ".npy", ".npz", ".arrow", ".parquet", ".h5",
    ".tfrecord", ".jsonl", ".csv", ".tsv", ".zip", ".tar", ".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg",
    ".pdf", ".mp3", ".mp4", ".wav", ".flac", ".so", ".o", ".pyc", ".py", ".ipynb", ".html", ".whl", ".db",
    ".sqlite", ".lock", ".model", ".cu", ".cpp", ".c", ".h", ".wandb",
))
# fmt: on
_ERROR_FILE_NAME = "error.json"
# JSON and YAML files in a folder are configurations, except the error file that torchrun writes for each rank.
_CONFIG_SUFFIXES = frozenset((".json", ".yaml", ".yml", ".toml"))


class LogSource(msgspec.Struct, frozen=True):
    """One log. ``label`` is its path as shown in the report; ``rank`` is the rank in its file name, or None."""

    label: str
    open: Callable[[], BinaryIO]
    rank: int | None = None
    is_error_file: bool = False
    is_flight_dump: bool = False
    """Whether it is a dump of PyTorch's Flight Recorder."""


def find_log_sources(arguments: list[str]) -> tuple[list[LogSource], list[Skipped]]:
    """The logs that the arguments name (files, folders, ``-``), in order, and the files that were skipped.

    Raises UserError for a path that doesn't exist, can't be read, or is neither a file nor a folder.
    """
    found: list[LogSource] = []
    skipped: list[Skipped] = []
    for argument in arguments:
        if argument == STDIN:
            found.append(LogSource("<stdin>", lambda: sys.stdin.buffer))
            continue
        path = Path(argument)
        try:
            if is_folder(path):
                inside, passed_over = _logs_in_folder(path)
                found += inside
                skipped += passed_over
                continue
            open_for_reading(path).close()
        except OSError as error:
            raise UserError(_unreadable_message(argument, error)) from None
        found.append(_source_of_file(path))
    return found, skipped


def _unreadable_message(path: str, error: OSError) -> Text:
    if error.errno == errno.ENOENT:
        return translated("{path}: no such log; give a log file, a folder of logs, or - for standard input").format(
            path=path
        )
    return translated("{path}: cannot be read ({why}); make it readable, or copy it to where you can read it").format(
        path=path, why=error.strerror or error
    )


def _source_of_file(path: Path) -> LogSource:
    return LogSource(
        str(path),
        lambda: open_for_reading(path),
        rank_from_file_name(path),
        path.name == _ERROR_FILE_NAME,
        is_flight_recorder_dump(path),
    )


def _logs_in_folder(folder: Path) -> tuple[list[LogSource], list[Skipped]]:
    found, other, closed = [], 0, []
    for root, folders, names in os.walk(folder):
        folders.sort(key=_natural_sort_key)
        for name in sorted(names, key=_natural_sort_key):
            path = Path(root, name)
            suffix = path.suffix.lower()
            passed_over = suffix in _NON_LOG_SUFFIXES or (suffix in _CONFIG_SUFFIXES and name != _ERROR_FILE_NAME)
            if not is_file(path) or (passed_over and not is_flight_recorder_dump(path)):
                other += 1
            elif not os.access(path, os.R_OK):
                closed.append(str(path))
            else:
                found.append(_source_of_file(path))
    skipped = []
    if other:
        what = translated("{count} files in {folder}").format(count=other, folder=folder)
        skipped.append(Skipped(what, translated("by their names, these files are not logs")))
    if closed:
        skipped.append(Skipped(Text(", ".join(closed), "，".join(closed)), translated("these files are not readable")))
    return found, skipped


def _natural_sort_key(name: str) -> list[tuple[int, int | str]]:
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d{1,18})", name)]


_RANK_IN_NAME_PATTERN = lazy_compile(
    r"(?:^|[._-])(?:global_?)?(?:rank|worker|proc|process)[._-]?(\d{1,5})(?=[._-]|$)", re.IGNORECASE
)


def rank_from_file_name(path: Path) -> int | None:
    """The rank in a log's file name: ``rank3.log``, or torchrun's ``attempt_0/3/stderr.log`` (a local rank)."""
    if named := _RANK_IN_NAME_PATTERN.search(path.name):
        return int(named.group(1))
    parents = path.parts[-3:-1]
    if len(parents) == 2 and parents[0].startswith("attempt_") and parents[1].isdecimal() and len(parents[1]) < 6:
        return int(parents[1])
    return None


def read_chunks(source: LogSource, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    """The log's bytes, decompressed, with UTF-16 converted to UTF-8; ``on_bytes`` is called with each chunk's size.

    A truncated compressed file or a failing disk ends the stream early; what was read until then is used.
    """
    try:
        with source.open() as raw:
            for chunk in _decode_to_utf8(_decompress(raw)):
                on_bytes(len(chunk))
                yield chunk
    except (OSError, EOFError, lzma.LZMAError, zlib.error):
        return


def read_whole(source: LogSource, max_bytes: int) -> bytes:
    """The whole file, up to ``max_bytes`` bytes; empty if it can't be read."""
    try:
        with source.open() as raw:
            return raw.read(max_bytes)
    except OSError:
        return b""


def _decompress(raw: BinaryIO) -> Iterator[bytes]:
    first = _read_available(raw)
    if first.startswith(b"\x1f\x8b"):
        stream = cast(BinaryIO, gzip.GzipFile(fileobj=cast(BinaryIO, _PrependedStream(first, raw))))
    elif first.startswith(b"BZh"):
        stream = cast(BinaryIO, bz2.BZ2File(cast(BinaryIO, _PrependedStream(first, raw))))
    elif first.startswith(b"\xfd7zXZ\x00"):
        stream = cast(BinaryIO, lzma.LZMAFile(cast(BinaryIO, _PrependedStream(first, raw))))  # noqa: SIM115 (its owner closes raw)
    else:
        if first:
            yield first
        stream = raw
    while chunk := _read_available(stream):
        yield chunk


def _read_available(stream: BinaryIO) -> bytes:
    """The available bytes, up to one chunk: doesn't wait for a pipe to fill it."""
    read1 = getattr(stream, "read1", None)
    return cast(bytes, read1(CHUNK_BYTES) if read1 is not None else stream.read(CHUNK_BYTES))


class _PrependedStream:
    """A stream of which the first bytes have already been read and are returned again."""

    def __init__(self, initial_bytes: bytes, rest: BinaryIO) -> None:
        self._first, self._rest = initial_bytes, rest

    def read(self, size: int = -1) -> bytes:
        if self._first:
            taken = self._first if size < 0 else self._first[:size]
            self._first = self._first[len(taken) :]
            return taken
        return self._rest.read(size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    @property
    def closed(self) -> bool:
        return False


def _decode_to_utf8(stream: Iterator[bytes]) -> Iterator[bytes]:
    first = next(stream, b"")
    name = _utf16_encoding(first)
    if name is None:
        yield first.removeprefix(codecs.BOM_UTF8)
        yield from stream
        return
    decoder = codecs.getincrementaldecoder(name)(errors="replace")
    yield decoder.decode(first).removeprefix("\ufeff").encode("utf-8", "replace")
    for chunk in stream:
        yield decoder.decode(chunk).encode("utf-8", "replace")


def _utf16_encoding(initial_bytes: bytes) -> str | None:
    """The UTF-16 encoding of a log written by PowerShell's ``>`` or ``Tee-Object``, else None."""
    if initial_bytes.startswith(codecs.BOM_UTF16_LE):
        return "utf-16-le"
    if initial_bytes.startswith(codecs.BOM_UTF16_BE):
        return "utf-16-be"
    sample = initial_bytes[:4096]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    # In UTF-16 every other byte of Latin letters is zero; in a sparse file they all are.
    if len(sample) > 8 and max(even, odd) > len(sample) // 3 and min(even, odd) < len(sample) // 20:
        return "utf-16-le" if odd > even else "utf-16-be"
    return None
