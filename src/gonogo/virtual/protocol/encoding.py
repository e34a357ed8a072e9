"""A worker's messages as bytes, with values as the user's program passes them."""

from __future__ import annotations

import numbers
import os
from typing import Any

import msgspec


def json_bytes(message: Any) -> bytes:
    """A message as JSON."""
    return msgspec.json.encode(message, enc_hook=_to_encodable)


def messagepack_bytes(message: Any) -> bytes:
    """A message as MessagePack."""
    return msgspec.msgpack.encode(message, enc_hook=_to_encodable)


def _to_encodable(value: Any) -> Any:
    """The value of a class that msgspec doesn't encode, but whose base class it does.

    Programs pass such values where they could pass a plain one: a file's name in datasets is a ``tracked_str``, a size
    from NumPy an ``int64``.
    """
    if isinstance(value, str):
        return str.__str__(value)  # __str__ of the subclass may return another text
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, dict):
        return dict(value)
    raise NotImplementedError(f"messages don't hold objects of type {type(value).__name__}")
