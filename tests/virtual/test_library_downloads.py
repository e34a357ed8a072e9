"""Files that a library fetches itself, torchvision's data sets and tiktoken's encodings, answer in a rehearsal."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gonogo.virtual.downloads import tiktoken_files, torchvision_datasets

UTILS = """\
import os
def check_integrity(fpath, md5=None):
    return os.path.isfile(fpath) and md5 is None
"""
LOADS = """\
def load_tiktoken_bpe(tiktoken_bpe_file, expected_hash=None):
    raise OSError(f"no network for {tiktoken_bpe_file}")

def data_gym_to_mergeable_bpe_ranks(vocab_bpe_file, encoder_json_file, vocab_bpe_hash=None, encoder_json_hash=None):
    raise OSError(f"no network for {vocab_bpe_file}")
"""


@pytest.fixture
def assumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The packages' own modules, reduced to what is asked there; what the rehearsal assumed."""
    for name, text in {
        "torchvision/__init__.py": "",
        "torchvision/datasets/__init__.py": "",
        "torchvision/datasets/utils.py": UTILS,
        "torchvision/datasets/cifar.py": "from .utils import check_integrity\n",
        "torchvision/datasets/mnist.py": "from .utils import check_integrity\n",
        "tiktoken/__init__.py": "",
        "tiktoken/load.py": LOADS,
    }.items():
        path = tmp_path / "packages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "cache"))
    for name in list(sys.modules):
        if name.partition(".")[0] in ("torchvision", "tiktoken"):
            monkeypatch.delitem(sys.modules, name)
    told: list[str] = []
    undos = [one.install(lambda what, kind="": told.append(what.en)) for one in (torchvision_datasets, tiktoken_files)]
    yield told
    for undo in undos:
        undo()
    for name in list(sys.modules):
        if name.partition(".")[0] in ("torchvision", "tiktoken"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("folder", "file", "rows", "labels", "classes"),
    [
        ("cifar-10-batches-py", "data_batch_5", 10_000, "labels", 10),
        ("cifar-100-python", "train", 50_000, "fine_labels", 100),
    ],
)
def test_cifars_files_are_as_published(
    tmp_path: Path, assumed: list[str], folder: str, file: str, rows: int, labels: str, classes: int
) -> None:
    from torchvision.datasets import cifar  # type: ignore[import-not-found, unused-ignore]

    path = tmp_path / folder / file
    assert cifar.check_integrity(str(path), "0" * 32)
    content = pickle.loads(path.read_bytes(), encoding="latin1")
    assert content["data"].shape == (rows, 3072)
    assert len(content[labels]) == rows
    assert len(set(content[labels])) == classes
    assert path.stat().st_size < 1 << 20
    assert len(assumed) == 1


def test_mnists_files_are_as_published(tmp_path: Path, assumed: list[str]) -> None:
    from torchvision.datasets import mnist  # type: ignore[import-not-found, unused-ignore]

    raw = tmp_path / "FashionMNIST" / "raw"
    assert all(mnist.check_integrity(str(raw / f"t10k-{one}-ubyte")) for one in ("images-idx3", "labels-idx1"))
    images = np.frombuffer((raw / "t10k-images-idx3-ubyte").read_bytes(), dtype=np.uint8)
    assert images[:16].view(">i4").tolist() == [2051, 10_000, 28, 28]
    assert len(images) == 16 + 10_000 * 28 * 28
    assert set((raw / "t10k-labels-idx1-ubyte").read_bytes()[8:]) == set(range(10))
    assert "FashionMNIST" in assumed[0]


def test_what_another_rank_has_made_is_found(tmp_path: Path, assumed: list[str]) -> None:
    from torchvision.datasets import cifar, mnist

    images = tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte"
    for module, path in ((cifar, tmp_path / "cifar-100-python" / "meta"), (mnist, images)):
        published = torchvision_datasets._published_file(str(path))
        assert published is not None
        published.write(str(path))
        assert [one.name for one in path.parent.iterdir()] == [path.name]
        assert module.check_integrity(str(path), "0" * 32)
    with open(images, "r+b") as file:  # as published: the first picture has some white in it
        file.seek(300)
        file.write(b"\xff")
    assert not mnist.check_integrity(str(images), "0" * 32)
    assert len(assumed) == 2


def test_what_is_here_or_unknown_is_left_alone(tmp_path: Path, assumed: list[str]) -> None:
    from torchvision.datasets import cifar

    broken = tmp_path / "cifar-10-batches-py" / "test_batch"
    broken.parent.mkdir()
    broken.write_bytes(b"cut short")
    assert not cifar.check_integrity(str(broken), "0" * 32)
    assert broken.read_bytes() == b"cut short"
    assert not cifar.check_integrity(str(tmp_path / "my-pictures" / "train"), "0" * 32)
    assert not cifar.check_integrity(str(tmp_path / "cifar-100-python" / "notes.txt"), "0" * 32)
    assert not assumed


def test_an_encoding_has_its_published_numbers(assumed: list[str]) -> None:
    from tiktoken import load  # type: ignore[import-not-found, unused-ignore]

    of_gpt2 = load.data_gym_to_mergeable_bpe_ranks(vocab_bpe_file="https://host/gpt-2/vocab.bpe", encoder_json_file="x")
    assert sorted(of_gpt2.values()) == list(range(50_256))
    assert {bytes([byte]) for byte in range(256)} <= set(of_gpt2)
    of_p50k = load.load_tiktoken_bpe("https://host/encodings/p50k_base.tiktoken")
    assert sorted(of_p50k.values()) == [number for number in range(50_281) if number != 50_256]
    assert [one.partition(" is ")[0] for one in assumed] == [
        "tiktoken's encoding gpt2", "tiktoken's encoding p50k_base",
    ]  # fmt: skip


def test_an_encoding_of_ones_own_is_read(assumed: list[str]) -> None:
    from tiktoken import load

    for own in ("https://host/my.tiktoken", "models/cl100k_base.tiktoken"):
        with pytest.raises(OSError, match="no network"):
            load.load_tiktoken_bpe(own)
    assert not assumed
