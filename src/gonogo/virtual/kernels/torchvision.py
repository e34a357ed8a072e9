"""torchvision whose compiled operators do not load, such as its CUDA build with a torch without CUDA.

Its import would fail, because it describes operators that don't exist. They are defined here without a kernel:
transforms and models work, and calling such an operator raises an error. Images are read and written by Pillow, with
the same values except for JPEG rounding.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch

from gonogo.finding import Text, translated
from gonogo.virtual import private
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor
from gonogo.virtual.values import contents

_OPERATOR_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


_IMAGE_READERS_ASSUMPTION = translated("torchvision's image readers load on the machine")
_MODE_BY_CHANNELS = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
"""Pillow's modes by ImageReadMode; 0 leaves an image unchanged."""


def install(patches: Patches, assume: Callable[[Text], object]) -> None:
    """Define the operators and an image reader, if torchvision's own library does not load."""

    def register_torchvision_ops(extension: ModuleType) -> None:
        if extension._has_ops() or hasattr(torch.ops.torchvision, "nms"):
            return
        library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        for operator in _OPERATOR_SCHEMAS:
            library.define(operator)
        patches.on_undo(functools.partial(private.unregister_library, library))

    patches.on_undo(after_import("torchvision.extension", register_torchvision_ops))
    patches.on_undo(after_import("torchvision.io.image", lambda module: _patch_image_io(patches, module, assume)))


def _patch_image_io(patches: Patches, module: ModuleType, assume: Callable[[Text], object]) -> None:
    if hasattr(torch.ops.image, "decode_png") or find_spec("PIL") is None:
        return

    def decode_image(data: Any, mode: Any = 0, *_: Any, device: Any = "cpu", **__: Any) -> Any:
        if isinstance(data, list | tuple):
            return [decode_image(one, mode, device=device) for one in data]
        assume(_IMAGE_READERS_ASSUMPTION)
        with private.without_dispatch_modes():
            picture = _decode_image(_real_values(data, torch.zeros(0, dtype=torch.uint8)), _read_mode_number(mode))
        return picture if str(device) == "cpu" else picture.to(device)

    def encode_image(picture: Any, *_: Any, format: str = "PNG", **options: Any) -> Any:
        assume(_IMAGE_READERS_ASSUMPTION)
        with private.without_dispatch_modes():
            return _encode_image(_real_values(picture, torch.zeros(picture.shape, dtype=torch.uint8)), format)

    def read_file(path: Any) -> torch.Tensor:
        with open(path, "rb") as file:
            return _bytes_to_tensor(file.read())

    def write_file(filename: Any, data: Any) -> None:
        with private.without_dispatch_modes(), open(filename, "wb") as file:
            file.write(bytes(_real_values(data, torch.zeros(data.shape, dtype=torch.uint8)).tolist()))

    def write_image(picture: Any, filename: Any, *_: Any, format: str, **__: Any) -> None:
        write_file(filename, encode_image(picture, format=format))

    own: dict[str, Callable[..., Any]] = {
        **dict.fromkeys(("decode_image", "decode_png", "decode_jpeg", "decode_gif", "decode_webp"), decode_image),
        **{f"encode_{name.lower()}": functools.partial(encode_image, format=name) for name in ("PNG", "JPEG")},
        **{f"write_{name.lower()}": functools.partial(write_image, format=name) for name in ("PNG", "JPEG")},
        "read_file": read_file,
        "write_file": write_file,
    }
    for name, function in own.items():
        if hasattr(module, name):
            patches.set(module, name, function)


def _read_mode_number(mode: Any) -> int:
    """The number of an ImageReadMode; newer releases also accept its name."""
    if isinstance(mode, str):
        return {"UNCHANGED": 0, "GRAY": 1, "GRAY_ALPHA": 2, "RGB": 3, "RGB_ALPHA": 4, "RGBA": 4}.get(mode.upper(), 0)
    return int(getattr(mode, "value", mode))


def _real_values(tensor: Any, fallback: torch.Tensor) -> torch.Tensor:
    """The tensor's values, or ``fallback`` if they are unknown. To be called with dispatch modes off."""
    known = contents.read_values(tensor) if isinstance(tensor, VirtualTensor) else tensor
    return fallback if known is None else known


def _bytes_to_tensor(data: bytes) -> torch.Tensor:
    with private.without_dispatch_modes():
        return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.zeros(0, dtype=torch.uint8)


def _decode_image(data: torch.Tensor, mode: int) -> torch.Tensor:
    from PIL import Image

    picture: Any = Image.open(io.BytesIO(bytes(data.tolist())))
    if mode in _MODE_BY_CHANNELS:
        picture = picture.convert(_MODE_BY_CHANNELS[mode])
    elif picture.mode not in _MODE_BY_CHANNELS.values():
        picture = picture.convert("RGB")
    pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
    return pixels.reshape(picture.height, picture.width, -1).permute(2, 0, 1).contiguous()


def _encode_image(picture: torch.Tensor, format: str) -> torch.Tensor:
    from PIL import Image

    channels, height, width = picture.shape
    pixels = bytes(picture.permute(1, 2, 0).contiguous().flatten().tolist())
    file = io.BytesIO()
    Image.frombytes(_MODE_BY_CHANNELS[channels], (width, height), pixels).save(file, format)
    return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
