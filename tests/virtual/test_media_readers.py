"""Sounds and pictures are read where the libraries that decode them do not load: to the same numbers."""

from __future__ import annotations

import io
import struct
import sys
import types
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from virtual.worlds import virtual_session

from gonogo.virtual.kernels import torchaudio as readers
from gonogo.virtual.ranks.session import Session


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with virtual_session(tmp_path_factory.mktemp("scratch")) as session:
        yield session


def _wav(body: bytes, kind: int, channels: int, bits: int, *, before: bytes = b"") -> bytes:
    width = channels * bits // 8
    head = struct.pack("<HHIIHH", kind, channels, 16000, 16000 * width, width, bits)
    chunks = b"fmt " + struct.pack("<I", len(head)) + head + before + b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (_wav(struct.pack("<4h", 0, 16384, -32768, 32767), 1, 2, 16), [[0, -1], [0.5, 32767 / 32768]]),
        (_wav(struct.pack("<2h", 16384, 0), 1, 1, 16, before=b"LIST\x03\0\0\0abc\0"), [[0.5, 0]]),
        (_wav(bytes([0, 128, 255]), 1, 1, 8), [[-1, 0, 127 / 128]]),
        (_wav(b"\0\0\x40" + b"\0\0\x80", 1, 1, 24), [[0.5, -1]]),
        (_wav(struct.pack("<2i", 1 << 30, -(1 << 31)), 1, 1, 32), [[0.5, -1]]),
        (_wav(struct.pack("<2f", 0.25, -0.5), 3, 1, 32), [[0.25, -0.5]]),
        (_wav(b"", 1, 2, 16), [[], []]),
    ],
)
def test_a_wav_file_is_what_it_says(data: bytes, expected: list[list[float]]) -> None:
    sound = readers.read_wav(data)
    assert sound is not None
    assert (sound.normalized.tolist(), sound.rate) == (expected, 16000)


@pytest.mark.parametrize(
    "data", [b"", b"RIFF", b"fLaC" + bytes(40), _wav(bytes(4), 7, 1, 8), _wav(bytes(4), 1, 1, 16)[:30]]
)
def test_what_is_no_plain_wav_file_is_left_alone(data: bytes) -> None:
    assert readers.read_wav(data) is None


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    readers.write_wav(str(tmp_path / "a.wav"), torch.tensor([[0.0, 0.5], [-1.0, 1.0]]), 8000)
    with wave.open(str(tmp_path / "a.wav")) as file:
        assert (file.getnchannels(), file.getframerate(), file.getnframes()) == (2, 8000, 2)
    again = readers.read_wav((tmp_path / "a.wav").read_bytes())
    assert again is not None
    assert torch.allclose(again.normalized, torch.tensor([[0.0, 0.5], [-1.0, 1.0]]), atol=1e-4)


def _package(raising: Exception) -> Any:
    module: Any = types.ModuleType("torchaudio")

    def load(uri: Any, frame_offset: int = 0, num_frames: int = -1, **_: Any) -> Any:
        raise raising

    module.load = load
    return module


@pytest.mark.slow
@pytest.mark.parametrize(
    "raising",
    [OSError("Could not load this library: libtorchcodec.so"), RuntimeError("Couldn't find appropriate backend")],
)
def test_the_packages_own_way_fails_for_want_of_libraries(
    session: Session, tmp_path: Path, raising: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gonogo.virtual.patching.patches import Patches

    package, patches, assumed = _package(raising), Patches(), []
    readers._patch_load_and_save(patches, package, assumed.append)
    path = tmp_path / "a.wav"
    path.write_bytes(_wav(struct.pack("<4h", 0, 16384, -32768, 0), 1, 1, 16))
    sound, rate = package.load(str(path), frame_offset=1, num_frames=2)
    assert (sound.shape, rate, sound.cuda().shape) == ((1, 2), 16000, (1, 2))
    assert package.load(io.BytesIO(path.read_bytes()))[0].shape == (1, 4)
    assert assumed
    other = tmp_path / "a.mp3"
    other.write_bytes(b"ID3" + bytes(100))
    with pytest.raises(type(raising)):
        package.load(str(other))


def test_what_isnt_installed_is_wanting_in_the_run_too(session: Session, tmp_path: Path) -> None:
    from gonogo.virtual.patching.patches import Patches

    if "torchcodec" in sys.modules:
        pytest.fail("torchcodec is installed here")
    package = _package(ImportError("TorchCodec is required for load_with_torchcodec."))
    readers._patch_load_and_save(Patches(), package, lambda text: None)
    (tmp_path / "a.wav").write_bytes(_wav(bytes(4), 1, 1, 16))
    with pytest.raises(ImportError, match="TorchCodec is required"):
        package.load(str(tmp_path / "a.wav"))
    with pytest.raises(FileNotFoundError):
        _follow_missing(tmp_path)


def _follow_missing(folder: Path) -> None:
    from gonogo.virtual.patching.patches import Patches

    package = _package(FileNotFoundError("no such file"))
    readers._patch_load_and_save(Patches(), package, lambda text: None)
    package.load(str(folder / "none.wav"))


def test_pictures_are_read_by_pillow(session: Session, tmp_path: Path) -> None:
    from gonogo.virtual.kernels import torchvision
    from gonogo.virtual.patching.patches import Patches

    module: Any = types.ModuleType("torchvision.io.image")
    for name in ("decode_image", "decode_png", "decode_jpeg", "encode_png", "write_jpeg", "read_file", "write_file"):
        setattr(module, name, None)
    torchvision._patch_image_io(Patches(), module, lambda text: None)
    picture = torch.arange(48, dtype=torch.uint8).reshape(3, 4, 4)
    data = module.encode_png(picture)
    assert module.decode_image(data).tolist() == picture.tolist()
    assert module.decode_png(data, "GRAY").shape == (1, 4, 4)
    assert module.decode_image(data, 4).shape == (4, 4, 4)
    module.write_file(tmp_path / "a.png", data)
    assert module.decode_jpeg(module.read_file(tmp_path / "a.png"), device="cuda").device.type == "cuda"
    module.write_jpeg(picture.cuda(), tmp_path / "a.jpg")
    assert module.decode_jpeg(module.read_file(str(tmp_path / "a.jpg"))).shape == (3, 4, 4)
