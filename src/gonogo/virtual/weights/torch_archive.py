"""The archive format of ``torch.save``, with storages that have no bytes.

An uncompressed zip file, in which each storage is a record aligned to 64 bytes. A storage with unknown values is a
hole: the file has its full length but takes no space on disk. In a stream, which can't have holes, such records are
omitted and listed in a separate record, and :func:`restore_holes` restores them.
"""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

UNREAD_LOCATION_PREFIX = "gonogo-unread:"
"""Prefix of the location of a storage without values."""
_OMITTED_RECORD = "gonogo-omitted"
_ALIGNMENT = 64
_BEFORE_STORAGES = ((".format_version", b"1"), (".storage_alignment", b"64"), ("byteorder", b"little"))
_AFTER_STORAGES = (("version", b"3\n"), (".data/serialization_id", b"0" * 40))
_ZIP64_LIMIT = 0xFFFFFFFF


class ArchiveRecord(NamedTuple):
    """One record of an archive; ``data`` is None for a hole of ``nbytes``."""

    name: str
    nbytes: int
    data: bytes | None


def archive_records(pickled: bytes, storages: Iterable[ArchiveRecord], names: frozenset[str]) -> list[ArchiveRecord]:
    """All records of an archive, in torch's order; ``names`` are those that this torch writes."""
    before = [ArchiveRecord(name, len(data), data) for name, data in _BEFORE_STORAGES if name in names]
    after = [ArchiveRecord(name, len(data), data) for name, data in _AFTER_STORAGES if name in names]
    return [ArchiveRecord("data.pkl", len(pickled), pickled), *before, *storages, *after]


def names_in_archive(archive: Any) -> frozenset[str]:
    """The names of an archive's records, without its prefix."""
    with zipfile.ZipFile(archive) as opened:
        return frozenset(name.partition("/")[2] for name in opened.namelist())


def _local_header(name: bytes, nbytes: int, crc: int, offset: int) -> bytes:
    """The header of a record, padded so that its data starts at a multiple of 64."""
    large = nbytes >= _ZIP64_LIMIT
    extra = struct.pack("<HHQQ", 1, 16, nbytes, nbytes) if large else b""
    length = 30 + len(name) + len(extra) + 4
    padding = -(offset + length) % _ALIGNMENT
    extra += struct.pack("<HH", 0x4246, padding) + b"Z" * padding
    size = _ZIP64_LIMIT if large else nbytes
    version = 45 if large else 20
    flags = 0x808  # names in UTF-8; a descriptor follows the data
    return struct.pack("<IHHHHHIIIHH", 0x04034B50, version, flags, 0, 0, 33, crc, size, size, len(name), len(extra)) + (
        name + extra
    )


def _data_descriptor(nbytes: int, crc: int) -> bytes:
    """What torch writes after the data of each record."""
    return struct.pack("<IIQQ" if nbytes >= _ZIP64_LIMIT else "<IIII", 0x08074B50, crc, nbytes, nbytes)


def _directory_entry(name: bytes, nbytes: int, crc: int, header_offset: int) -> bytes:
    wide = b""
    size, offset = nbytes, header_offset
    if nbytes >= _ZIP64_LIMIT:
        wide += struct.pack("<QQ", nbytes, nbytes)
        size = _ZIP64_LIMIT
    if header_offset >= _ZIP64_LIMIT:
        wide += struct.pack("<Q", header_offset)
        offset = _ZIP64_LIMIT
    extra = struct.pack("<HH", 1, len(wide)) + wide if wide else b""
    return (
        struct.pack(
            "<IHHHHHHIIIHHHHHII", 0x02014B50, 45, 45 if wide else 20, 0x808, 0, 0, 33, crc, size, size, len(name),
            len(extra), 0, 0, 0, 0, offset,
        )
        + name
        + extra
    )  # fmt: skip


def write_archive(file: Any, prefix: str, records: Iterable[ArchiveRecord], *, sparse: bool) -> int:
    """Write the records to a binary file; returns the archive's length, which with ``sparse`` is mostly holes.

    Without ``sparse`` (a stream), records without data are omitted and listed.
    """
    records = list(records)
    if not sparse:
        left_out = {record.name: record.nbytes for record in records if record.data is None}
        records = [record for record in records if record.data is not None]
        if left_out:
            listed = json.dumps(left_out).encode()
            records.append(ArchiveRecord(_OMITTED_RECORD, len(listed), listed))
    start = file.tell() if sparse else 0
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
        descriptor = _data_descriptor(record.nbytes, crc)
        file.write(descriptor)
        at += len(descriptor)
    entries = b"".join(directory)
    end64 = struct.pack(
        "<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, len(directory), len(directory), len(entries), at
    ) + struct.pack("<IIQI", 0x07064B50, 0, at + len(entries), 1)
    count = min(len(directory), 0xFFFF)
    end = struct.pack(
        "<IHHHHIIH", 0x06054B50, 0, 0, count, count, min(len(entries), _ZIP64_LIMIT), min(at, _ZIP64_LIMIT), 0
    )  # fmt: skip
    tail = entries + end64 + end  # torch writes the one for large archives into small ones, too
    file.write(tail)
    return at + len(tail)


def omitted_records(source: Any) -> dict[str, int]:
    """The names and lengths of records that were omitted from an archive (a path or a binary file)."""
    with zipfile.ZipFile(source) as archive:
        listed = next((name for name in archive.namelist() if name.endswith("/" + _OMITTED_RECORD)), None)
        return {} if listed is None else dict(json.loads(archive.read(listed)))


def restore_holes(source: Any, target: str, omitted_sizes: dict[str, int]) -> None:
    """Rewrite an archive to the path ``target``, with the omitted records as holes."""
    with zipfile.ZipFile(source) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/" + _OMITTED_RECORD)]
        prefix = names[0].partition("/")[0]
        records = [
            ArchiveRecord(name.partition("/")[2], archive.getinfo(name).file_size, archive.read(name)) for name in names
        ]
    records += [ArchiveRecord(name, nbytes, None) for name, nbytes in omitted_sizes.items()]
    with open(target, "wb") as file:
        write_archive(file, prefix, records, sparse=True)
