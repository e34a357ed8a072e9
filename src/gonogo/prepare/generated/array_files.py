"""Files of numbers as numpy and torch save them, written without either: ``.npy`` and ``.pt``."""

from __future__ import annotations

import io
import math
import struct
import zipfile

import msgspec

from gonogo.evidence.prepared import GENERATED_STATE

ARRAY_SUFFIXES = (".npy", ".pt", ".pth")
"""The suffixes of files that are generated."""
FREE_SIZES = (37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83)
"""The sizes of dimensions that nothing has determined: primes, none of which a model usually has, so that an error
that names one tells which dimension is meant."""
_FORMATS = {"float32": "<f", "float64": "<d", "int64": "<q", "uint16": "<H", "float16": "<e", "int32": "<i"}
_NUMPY_KINDS = {"float32": "<f4", "float64": "<f8", "int64": "<i8", "uint16": "<u2", "float16": "<f2", "int32": "<i4"}
_TORCH_STORAGES = {
    "float32": "FloatStorage", "float64": "DoubleStorage", "int64": "LongStorage", "float16": "HalfStorage",
    "int32": "IntStorage",
}  # fmt: skip


class ArrayLayout(msgspec.Struct, frozen=True):
    """The dtype, as numpy names it, and the shape of the array in a file."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def undetermined_dimensions(self) -> tuple[int, ...]:
        """The dimensions whose size nothing has determined."""
        return tuple(at for at, size in enumerate(self.shape) if size in FREE_SIZES)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def array_file(suffix: str, layout: ArrayLayout, number: int) -> bytes:
    """The content of one array file in the format of its suffix; ``number`` varies the values between files.

    Whole numbers are 0 and 1, which are indices in any table of classes; of token ids (``uint16``) every other one is
    below 50. Others are between 0 and 1, with both signs absent so that roots and logarithms of 1 + x exist.
    """
    return (
        _npy_bytes(layout, _array_bytes(layout, number))
        if suffix == ".npy"
        else _pt_bytes(layout, _array_bytes(layout, number))
    )


def _array_bytes(layout: ArrayLayout, number: int) -> bytes:
    count = math.prod(layout.shape)
    form = _FORMATS[layout.dtype]
    cycle: list[float]
    if layout.dtype == "uint16":
        cycle = [at % 50 if at % 2 == 0 else 0 for at in range(100)]
    elif layout.dtype.startswith("int"):
        cycle = [(number + at) % 2 for at in range(2)]
    else:
        cycle = [((number + at) % 8) / 8 for at in range(8)]
    once = b"".join(struct.pack(form, value) for value in cycle)
    return (once * (count // len(cycle) + 1))[: count * struct.calcsize(form)]


def _npy_bytes(layout: ArrayLayout, values: bytes) -> bytes:
    """numpy's format 1.0 (``numpy.lib.format``)."""
    shape = f"({', '.join(map(str, layout.shape))}{',' if len(layout.shape) == 1 else ''})"
    head = f"{{'descr': '{_NUMPY_KINDS[layout.dtype]}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + values


def _pt_bytes(layout: ArrayLayout, values: bytes) -> bytes:
    """A tensor in the format of ``torch.save``: a zip with a pickle and the storage that it refers to."""
    dtype = layout.dtype if layout.dtype in _TORCH_STORAGES else "int64"
    strides = [math.prod(layout.shape[at + 1 :]) for at in range(len(layout.shape))]
    pickled = b"".join([
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((",
        _pickled_text("storage"), f"ctorch\n{_TORCH_STORAGES[dtype]}\n".encode(),
        _pickled_text("0"), _pickled_text("cpu"), _pickled_int(math.prod(layout.shape)), b"tQ",
        _pickled_int(0), _pickled_tuple(layout.shape), _pickled_tuple(strides),
        b"\x89ccollections\nOrderedDict\n)RtR.",
    ])  # fmt: skip
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in (("data.pkl", pickled), ("data/0", values), ("version", b"3\n")):
            archive.writestr(zipfile.ZipInfo(f"archive/{name}"), content)
    return buffer.getvalue()


def checkpoint_file() -> bytes:
    """An empty dictionary in the format of ``torch.save``, marked as generated."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in (("data.pkl", b"\x80\x02}q\x00."), ("version", b"3\n"), (GENERATED_STATE, b"")):
            archive.writestr(zipfile.ZipInfo(f"archive/{name}"), content)
    return buffer.getvalue()


def _pickled_text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def _pickled_int(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def _pickled_tuple(values: list[int] | tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(_pickled_int, values)) + b"t"
