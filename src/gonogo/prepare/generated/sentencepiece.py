"""Writes a sentencepiece model file, which slow tokenizers read, as a hand-encoded protocol buffer.

Field numbers are those of sentencepiece_model.proto: a ModelProto has pieces (1), TrainerSpec (2) and NormalizerSpec
(3).
"""

from __future__ import annotations

import struct

from gonogo.evidence.published.models import TokenizerLayout

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6
_UNIGRAM, _BPE = 1, 2


def _encode_varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _varint_field(field: int, value: int) -> bytes:
    return _encode_varint(field << 3) + _encode_varint(value)


def _length_delimited(field: int, value: bytes) -> bytes:
    return _encode_varint(field << 3 | 2) + _encode_varint(len(value)) + value


def _token_type(layout: TokenizerLayout, token: str) -> int:
    if token == layout.unk:
        return _UNKNOWN
    if token in layout.special_tokens().values():
        return _CONTROL if token in (layout.bos, layout.eos, layout.pad) else _USER_DEFINED
    return _BYTE if token.startswith("<0x") and len(token) == 6 else _NORMAL


def sentencepiece_model(layout: TokenizerLayout, tokens: list[str]) -> bytes:
    """The model with these tokens in the order of their ids; earlier ones are merged first."""
    tokens = tokens[: _count_model_tokens(layout)]
    if layout.class_name == "XLMRobertaTokenizer":  # has its own first four tokens; shifts ids by one
        tokens = ["<unk>", "<s>", "</s>", *tokens[4:]]
    numbers = {token: number for number, token in enumerate(tokens)}
    special = set(layout.special_tokens().values())
    out = bytearray()
    for number, token in enumerate(tokens):
        kind = _token_type(layout, token) if token in special or token.startswith("<0x") else _NORMAL
        piece = _length_delimited(1, token.encode()) + _encode_varint(2 << 3 | 5) + struct.pack("<f", -float(number))
        out += _length_delimited(1, piece + _varint_field(3, kind))
    ids = ((40, layout.unk), (41, layout.bos), (42, layout.eos), (43, layout.pad))
    trainer = _varint_field(3, _UNIGRAM if layout.kind == "unigram" else _BPE) + _varint_field(4, layout.size)
    for field, name in ids:
        trainer += _varint_field(field, numbers.get(name or "", -1))
        if name in numbers:  # by which the library itself finds it: the default of bos is <s>
            trainer += _length_delimited(field + 5, name.encode())
    if layout.kind == "pieces":
        trainer += _varint_field(35, 1)
    out += _length_delimited(2, trainer)
    out += _length_delimited(
        3, _length_delimited(1, b"identity") + _varint_field(3, 1) + _varint_field(4, 0) + _varint_field(5, 1)
    )
    return bytes(out)


def _count_model_tokens(layout: TokenizerLayout) -> int:
    """How many tokens are in the model file; the class itself adds those after them (``<extra_id_0>``)."""
    last, special = layout.size, layout.special_tokens()
    while last - 1 in special:
        last -= 1
    return last
