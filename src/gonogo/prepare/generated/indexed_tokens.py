"""Megatron's tokenized data: ``PREFIX.bin`` with the token ids, ``PREFIX.idx`` with where each document begins.

The layout is that of ``megatron/core/datasets/indexed_dataset.py`` (``_IndexWriter``), which NeMo, ms-swift and
Megatron-DeepSpeed read too.
"""

from __future__ import annotations

import struct

_MAGIC = b"MMIDIDX\x00\x00"
_VERSION = 1
_UINT16_CODE = 8
"""The code of the ids' dtype, ``DType.uint16``."""
_DOCUMENT_COUNT = 2048
"""Enough for each part of a split in per mille (``949,50,1``) to get some."""
_MAX_DOCUMENT = 1024
"""Tokens of a document; samples of any length are cut from all of them, one after another."""
_DISTINCT_IDS = 48
"""Different token ids, from 1: in any vocabulary, and not the id of padding."""


def indexed_token_files(tokens: int) -> dict[str, bytes]:
    """The two files by suffix, with documents of that many tokens, or fewer if that is a lot."""
    tokens = min(tokens, _MAX_DOCUMENT)
    size = tokens * 2  # bytes of a document
    document = struct.pack(f"<{tokens}H", *(1 + number % _DISTINCT_IDS for number in range(tokens)))
    index = [_MAGIC, struct.pack("<QBQQ", _VERSION, _UINT16_CODE, _DOCUMENT_COUNT, _DOCUMENT_COUNT + 1)]
    index.append(struct.pack(f"<{_DOCUMENT_COUNT}i", *[tokens] * _DOCUMENT_COUNT))
    index.append(struct.pack(f"<{_DOCUMENT_COUNT}q", *range(0, size * _DOCUMENT_COUNT, size)))
    index.append(struct.pack(f"<{_DOCUMENT_COUNT + 1}q", *range(_DOCUMENT_COUNT + 1)))
    return {".idx": b"".join(index), ".bin": document * _DOCUMENT_COUNT}
