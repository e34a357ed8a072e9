"""``torchaudio.load`` and ``save`` of WAV files if their decoders don't load on this machine.

Since 2.9, torchaudio reads through torchcodec, which needs FFmpeg and CUDA libraries; before, it had libraries of its
own. The training machine is assumed to have them. If they load here, they are used; if torchcodec isn't installed,
the error is raised as in the run.
"""

from __future__ import annotations

import functools
import os
import struct
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NamedTuple

import torch

from gonogo.finding import Text, translated
from gonogo.virtual import private
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.tensor import VirtualTensor
from gonogo.virtual.values import contents

_AUDIO_DECODERS_ASSUMPTION = translated("torchaudio's audio decoders load on the machine (torchcodec, FFmpeg)")
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE


class WavFile(NamedTuple):
    """A WAV file with its raw samples by channel."""

    samples: torch.Tensor
    rate: int
    bits: int
    is_float: bool

    @property
    def normalized(self) -> torch.Tensor:
        """Samples scaled to between -1 and 1."""
        if self.is_float:
            return self.samples.float()
        if self.bits == 8:
            return (self.samples.float() - 128) / 128
        return self.samples.float() / float(1 << (self.bits - 1))


def install(patches: Patches, assume: Callable[[Text], object]) -> None:
    """Read and write WAV files if the package itself fails because of missing libraries."""
    patches.on_undo(after_import("torchaudio", lambda module: _patch_load_and_save(patches, module, assume)))


def _patch_load_and_save(patches: Patches, module: ModuleType, assume: Callable[[Text], object]) -> None:
    for name, own in (
        ("load", _load_wav),
        ("load_with_torchcodec", _load_wav),
        ("save", _save_wav),
        ("info", _wav_info),
    ):
        original = getattr(module, name, None)
        if original is not None:
            patches.set(module, name, _wrap_with_fallback(original, functools.partial(own, module), assume))


def _wrap_with_fallback(
    original: Callable[..., Any], replacement: Callable[..., Any], assume: Callable[[Text], object]
) -> Any:
    @functools.wraps(original)
    def call_or_fall_back(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except (ImportError, OSError, RuntimeError, AttributeError, NotImplementedError) as error:
            if isinstance(error, FileNotFoundError) or _is_not_installed(error):
                raise
            answer = replacement(*args, **kwargs)
            if answer is NotImplemented:
                raise
            assume(_AUDIO_DECODERS_ASSUMPTION)
            return answer

    return call_or_fall_back


def _is_not_installed(error: Exception) -> bool:
    """Whether it fails because torchcodec isn't installed, which means that the run doesn't have it either."""
    return isinstance(error, ImportError) and find_spec("torchcodec") is None and "torchcodec" in str(error).lower()


def _load_wav(
    module: Any, uri: Any, frame_offset: int = 0, num_frames: int = -1, normalize: bool = True,
    channels_first: bool = True, *_: Any, **__: Any,
) -> Any:  # fmt: skip
    with private.without_dispatch_modes():
        sound = read_wav(_read_bytes(uri))
        if sound is None:
            return NotImplemented
        samples = sound.normalized if normalize or find_spec("torchcodec") is not None else sound.samples
        end = None if num_frames < 0 else frame_offset + num_frames
        samples = samples[:, frame_offset:end]
        return (samples if channels_first else samples.t()).contiguous(), sound.rate


def _wav_info(module: Any, uri: Any, *_: Any, **__: Any) -> Any:
    with private.without_dispatch_modes():
        sound = read_wav(_read_bytes(uri))
    if sound is None or not hasattr(module, "AudioMetaData"):
        return NotImplemented
    channels, frames = sound.samples.shape
    encoding = "PCM_F" if sound.is_float else "PCM_U" if sound.bits == 8 else "PCM_S"
    return module.AudioMetaData(sound.rate, frames, channels, sound.bits, encoding)


def _save_wav(
    module: Any, uri: Any, src: torch.Tensor, sample_rate: int, channels_first: bool = True, *_: Any, **__: Any
) -> Any:
    if not isinstance(uri, str | os.PathLike) or not os.fspath(uri).lower().endswith(".wav"):
        return NotImplemented
    with private.without_dispatch_modes():
        known = contents.read_values(src) if isinstance(src, VirtualTensor) else src
        sound = torch.zeros(src.shape) if known is None else known.detach().float()
        sound = sound.unsqueeze(0) if sound.ndim == 1 else sound if channels_first else sound.t()
        write_wav(os.fspath(uri), sound, sample_rate)
    return None


def _read_bytes(uri: Any) -> bytes:
    if hasattr(uri, "read"):
        read: bytes = uri.read()
        return read
    with open(uri, "rb") as file:
        return file.read()


def read_wav(data: bytes) -> WavFile | None:
    """Read an uncompressed WAV file; None for any other file."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE" or sys.byteorder != "little":
        return None
    kind = channels = rate = bits = 0
    place = 12
    while place + 8 <= len(data):
        name, size = data[place : place + 4], int.from_bytes(data[place + 4 : place + 8], "little")
        body = data[place + 8 : place + 8 + size]
        if name == b"fmt " and len(body) >= 16:
            kind, channels, rate, _, _, bits = struct.unpack("<HHIIHH", body[:16])
            if kind == _EXTENSIBLE and len(body) >= 26:
                kind = int.from_bytes(body[24:26], "little")
        elif name == b"data" and channels:
            samples = _decode_samples(bytearray(body), kind, bits)
            if samples is None:
                return None
            whole = samples[: samples.numel() // channels * channels]
            return WavFile(whole.reshape(-1, channels).t(), rate, bits, kind == _FLOAT)
        place += 8 + size + size % 2
    return None


def _decode_samples(body: bytearray, kind: int, bits: int) -> torch.Tensor | None:
    kinds = {
        (_PCM, 8): torch.uint8, (_PCM, 16): torch.int16, (_PCM, 32): torch.int32,
        (_FLOAT, 32): torch.float32, (_FLOAT, 64): torch.float64,
    }  # fmt: skip
    width = bits // 8
    body = body[: len(body) // width * width] if width else bytearray()
    if (kind, bits) == (_PCM, 24):
        parts = torch.frombuffer(body, dtype=torch.uint8).reshape(-1, 3).int() if body else torch.zeros(0, 3).int()
        number = parts[:, 0] + parts[:, 1] * 256 + parts[:, 2] * 65536
        return number - (number >= 1 << 23).int() * (1 << 24)
    dtype = kinds.get((kind, bits))
    if dtype is None:
        return None
    return torch.frombuffer(body, dtype=dtype) if body else torch.zeros(0, dtype=dtype)


def write_wav(path: str, waveform: torch.Tensor, sample_rate: int) -> None:
    """Write samples between -1 and 1, of shape (channels, samples), as a 16-bit WAV file."""
    channels = waveform.shape[0]
    body = (waveform.clamp(-1, 1) * 32767).round().to(torch.int16).t().contiguous()
    data = bytes(body.view(torch.uint8).flatten().tolist())
    with open(path, "wb") as file:
        file.write(b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt ")
        file.write(
            struct.pack("<IHHIIHH", 16, _PCM, channels, sample_rate, sample_rate * channels * 2, channels * 2, 16)
        )
        file.write(b"data" + struct.pack("<I", len(data)) + data)
