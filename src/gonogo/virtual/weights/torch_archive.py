"""The archive that ``torch.save`` writes, with storages that have no bytes.

A zip without compression, each storage a record aligned to 64 bytes. A storage whose values are not known is a hole:
the file has its full length and takes no room on the disk. Into a stream, which can't have holes, such records are
left out and listed in a record of their own, and :func:`expand` puts them back.
"""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

UNREAD_AT = "gonogo-unread:"
"""Put before the location of a storage without values."""
_OMITTED = "gonogo-omitted"
_ALIGNMENT = 64
_FOUR_GIB = 0xFFFFFFFF


class Record(NamedTuple):
    """One record of an archive; ``data`` is None for a hole of ``nbytes``."""

    name: str
    nbytes: int
    data: bytes | None


def _local_header(name: bytes, nbytes: int, crc: int, at: int) -> bytes:
    """A record's header, padded so that its data begins at a multiple of 64."""
    large = nbytes >= _FOUR_GIB
    extra = struct.pack("<HHQQ", 1, 16, nbytes, nbytes) if large else b""
    length = 30 + len(name) + len(extra) + 4
    padding = -(at + length) % _ALIGNMENT
    extra += struct.pack("<HH", 0x4246, padding) + b"Z" * padding
    size = _FOUR_GIB if large else nbytes
    version = 45 if large else 20
    return struct.pack("<IHHHHHIIIHH", 0x04034B50, version, 0x800, 0, 0, 33, crc, size, size, len(name), len(extra)) + (
        name + extra
    )


def _directory_entry(name: bytes, nbytes: int, crc: int, at: int) -> bytes:
    wide = b""
    size, offset = nbytes, at
    if nbytes >= _FOUR_GIB:
        wide += struct.pack("<QQ", nbytes, nbytes)
        size = _FOUR_GIB
    if at >= _FOUR_GIB:
        wide += struct.pack("<Q", at)
        offset = _FOUR_GIB
    extra = struct.pack("<HH", 1, len(wide)) + wide if wide else b""
    return (
        struct.pack(
            "<IHHHHHHIIIHHHHHII", 0x02014B50, 45, 45 if wide else 20, 0x800, 0, 0, 33, crc, size, size, len(name),
            len(extra), 0, 0, 0, 0, offset,
        )
        + name
        + extra
    )  # fmt: skip


def write_archive(file: Any, prefix: str, records: Iterable[Record], *, holes: bool) -> int:
    """Write the records to a binary file; returns the archive's length (with ``holes``, mostly not on the disk).

    Without ``holes`` (a stream), records without data are left out and listed.
    """
    records = list(records)
    if not holes:
        left_out = {record.name: record.nbytes for record in records if record.data is None}
        records = [record for record in records if record.data is not None]
        if left_out:
            listed = json.dumps(left_out).encode()
            records.append(Record(_OMITTED, len(listed), listed))
    start = file.tell() if holes else 0
    at = 0
    directory = []
    for record in records:
        name = f"{prefix}/{record.name}".encode()
        crc = 0 if record.data is None else zlib.crc32(record.data)
        header = _local_header(name, record.nbytes, crc, at)
        directory.append(_directory_entry(name, record.nbytes, crc, at))
        file.write(header)
        at += len(header)
        if record.data is None:
            at += record.nbytes
            file.seek(start + at)
        else:
            file.write(record.data)
            at += len(record.data)
    entries = b"".join(directory)
    end64 = struct.pack(
        "<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, len(directory), len(directory), len(entries), at
    ) + struct.pack("<IIQI", 0x07064B50, 0, at + len(entries), 1)
    count = min(len(directory), 0xFFFF)
    wide = at >= _FOUR_GIB or len(directory) >= 0xFFFF
    end = struct.pack(
        "<IHHHHIIH", 0x06054B50, 0, 0, count, count, min(len(entries), _FOUR_GIB), min(at, _FOUR_GIB), 0
    )  # fmt: skip
    tail = entries + (end64 if wide else b"") + end
    file.write(tail)
    return at + len(tail)


def omitted_in(source: Any) -> dict[str, int]:
    """Records, by name, that were left out of an archive (a path or a binary file), and their lengths."""
    with zipfile.ZipFile(source) as archive:
        listed = next((name for name in archive.namelist() if name.endswith("/" + _OMITTED)), None)
        return {} if listed is None else dict(json.loads(archive.read(listed)))


def expand(source: Any, target: str, omitted: dict[str, int]) -> None:
    """Write an archive anew to the path ``target``, with what was left out as holes."""
    with zipfile.ZipFile(source) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/" + _OMITTED)]
        prefix = names[0].partition("/")[0]
        records = [
            Record(name.partition("/")[2], archive.getinfo(name).file_size, archive.read(name)) for name in names
        ]
    records += [Record(name, nbytes, None) for name, nbytes in omitted.items()]
    with open(target, "wb") as file:
        write_archive(file, prefix, records, holes=True)
