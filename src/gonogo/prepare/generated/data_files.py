"""Writes generated rows as JSON, JSON lines, CSV, text or Parquet, or as a Hub dataset with its card."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import string
import struct
import wave
import zlib
from collections.abc import Sequence
from typing import Any

from gonogo.finding import UserError, translated

_NO_PYARROW = translated("{path} is a Parquet file, and generating one needs pyarrow: pip install pyarrow")


def encode_rows(path: str, rows: Sequence[dict[str, Any]], separator: str = "") -> bytes:
    """Rows in the format of the path's suffix, JSON by default. Raises UserError if it can't be generated.

    ``separator`` is the one that the program expects between columns, if known.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix == ".jsonl":
        return _jsonl_bytes(rows)
    if suffix in (".csv", ".tsv"):
        return _csv_bytes(rows, separator or ("\t" if suffix == ".tsv" else ","))
    if suffix == ".txt":
        letters = f"{string.ascii_letters} {string.digits} {string.punctuation}\n"  # for character-level models
        return (letters + "".join(f"{_longest_string(row)}\n" for row in rows)).encode()
    if suffix == ".bin":
        return _token_id_bytes(rows)
    if suffix == ".parquet":
        return _parquet_bytes(path, rows)
    return (json.dumps(list(rows), ensure_ascii=False, indent=1) + "\n").encode()


def hub_dataset_files(
    columns: dict[str, str], rows: Sequence[dict[str, Any]], splits: Sequence[str], subsets: Sequence[str]
) -> dict[str, bytes]:
    """The files of a Hub dataset: a file for each split, and the card, which declares image and audio columns."""
    names = list(dict.fromkeys(splits)) or ["train", "test"]
    files = {f"data/{split}.jsonl": _jsonl_bytes(rows) for split in names}
    card = ["---", "configs:"]
    for number, subset in enumerate(dict.fromkeys(subsets or ("default",))):
        card += [f"- config_name: {json.dumps(subset)}", *(["  default: true"] if number == 0 else []), "  data_files:"]
        for split in names:
            card += [f"  - split: {split}", f"    path: data/{split}.jsonl"]
    typed = _dataset_card_features(columns)
    if typed:
        for number, subset in enumerate(dict.fromkeys(subsets or ("default",))):
            card += ["dataset_info:"] if number == 0 else []
            card += [f"- config_name: {json.dumps(subset)}", "  features:", *typed]
    files["README.md"] = "\n".join([*card, "---", ""]).encode()
    return files


def _dataset_card_features(columns: dict[str, str]) -> list[str]:
    """The card's ``features``; empty if JSON types are right for all columns."""
    if not any(kind.rstrip("s") in ("image", "audio") for kind in columns.values()):
        return []
    lines: list[str] = []
    for name, kind in columns.items():
        lines.append(f"  - name: {name}")
        if kind in ("image", "audio"):
            lines.append(f"    dtype: {kind}")
        elif kind in ("images", "audios"):
            lines.append(f"    sequence: {kind.removesuffix('s')}")
        elif kind in ("chat", "asked", "answered", "turns", "exchanges"):
            keys = _MESSAGE_KEYS.get(kind, ("role", "content"))
            lines += ["    list:", *(part for key in keys for part in (f"    - name: {key}", "      dtype: string"))]
        elif kind == "parts":
            parts = [("index", "int64"), ("text", "string"), ("type", "string")]
            lines += ["    list:", "    - name: role", "      dtype: string", "    - name: content", "      list:"]
            lines += [line for key, type_ in parts for line in (f"      - name: {key}", f"        dtype: {type_}")]
        elif kind == "texts":
            lines.append("    sequence: string")
        elif kind == "ints":
            lines.append("    sequence: int64")
        else:
            lines.append(f"    dtype: {_ARROW_DTYPES.get(kind, 'string')}")
    return lines


_MESSAGE_KEYS = {"turns": ("from", "value"), "exchanges": ("user", "assistant")}
_ARROW_DTYPES = {"int": "int64", "label": "int64", "float": "float64", "flag": "bool"}


def _jsonl_bytes(rows: Sequence[dict[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()


def _csv_bytes(rows: Sequence[dict[str, Any]], separator: str) -> bytes:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]) if rows else [], delimiter=separator, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: json.dumps(v) if isinstance(v, (list, dict)) else v for name, v in row.items()})
    return buffer.getvalue().encode()


def _token_id_bytes(rows: Sequence[dict[str, Any]]) -> bytes:
    """Token ids as 16-bit integers, as many as there are words; small ones, which are in any vocabulary.

    Every other id is 0, so that they are still small if the file is read as 32-bit integers.
    """
    count = sum(len(_longest_string(row).split()) for row in rows)
    return struct.pack(f"<{count}H", *(number % 50 if number % 2 == 0 else 0 for number in range(count)))


def _longest_string(row: dict[str, Any]) -> str:
    return max((value for value in row.values() if isinstance(value, str)), key=len, default="")


def _parquet_bytes(path: str, rows: Sequence[dict[str, Any]]) -> bytes:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UserError(_NO_PYARROW.format(path=path)) from None
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), sink)
    return sink.getvalue()


def png_image(width: int = 640, height: int = 480) -> bytes:
    """A PNG in RGB: a plain gradient."""
    lines = b"".join(b"\0" + bytes(x * 255 // width for x in range(width) for _ in range(3)) for _ in range(height))

    def png_chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", header)
        + png_chunk(b"IDAT", zlib.compress(lines))
        + png_chunk(b"IEND", b"")
    )


def wav_audio(seconds: float = 5.0, sample_rate: int = 16_000) -> bytes:
    """A mono WAV file: a tone."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        tone = (int(8000 * math.sin(at * 440 * 2 * math.pi / sample_rate)) for at in range(int(seconds * sample_rate)))
        file.writeframes(struct.pack(f"<{int(seconds * sample_rate)}h", *tone))
    return buffer.getvalue()
