"""Adapters on the base of the training and on another: how contents are compared, and a few real uses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from bases import CELLS, TRUTH, judged
from safetensors.numpy import save_file

from gonogo.evidence.rehearsal.lives import TensorSample
from gonogo.evidence.rehearsal.tensor_samples import compare_samples
from gonogo.virtual.weights.base_samples import have_same_weights, tensor_sample
from gonogo.virtual.weights.safetensors_names import UNREAD_KEY


def _write(folder: Path, value: np.ndarray, **metadata: str) -> str:
    folder.mkdir()
    save_file({"a.weight": value}, folder / "model.safetensors", {"format": "pt", **metadata})
    return str(folder)


def test_folders_with_the_same_weights(tmp_path: Path) -> None:
    drawn = np.random.default_rng(1).normal(0, 1, (64, 64)).astype(np.float32)
    base = _write(tmp_path / "base", drawn)
    assert have_same_weights(base, _write(tmp_path / "copy", drawn)) is True
    assert have_same_weights(base, _write(tmp_path / "half", drawn.astype(np.float16))) is True
    assert have_same_weights(base, _write(tmp_path / "tuned", drawn * 1.01)) is False
    assert have_same_weights(base, _write(tmp_path / "generated", drawn, **{UNREAD_KEY: "all"})) is None


def test_samples_of_other_dtypes_and_shapes(tmp_path: Path) -> None:
    one = TensorSample("float32", (8,), "a", (0.5, -0.25))
    assert compare_samples(one, TensorSample("float32", (8,), "a", (0.5, -0.25))) == "same"
    assert compare_samples(one, TensorSample("float32", (8,), "b", (0.5, -0.25))) == "other", (
        "of its dtype, each bit counts"
    )
    assert compare_samples(one, TensorSample("bfloat16", (8,), "b", (0.502, -0.25))) == "rounded"
    assert compare_samples(one, TensorSample("bfloat16", (8,), "b", (0.6, -0.25))) == "other"
    assert compare_samples(one, TensorSample("uint8", (4,), "b")) == "packed"
    assert compare_samples(one, TensorSample("float32", (9,), "a", (0.5, -0.25))) == "other"


def test_a_sample_reaches_from_the_first_byte_to_the_last(tmp_path: Path) -> None:
    import torch

    path = tmp_path / "bytes"
    value = np.arange(1000, dtype=np.float32)
    samples = []
    for changed in (None, 0, 999):
        own = value.copy()
        if changed is not None:
            own[changed] = -1
        path.write_bytes(own.tobytes())
        samples.append(tensor_sample(path, 0, 4000, (1000,), torch.float32))
    assert len({one.digest for one in samples}) == 3
    assert samples[0].values[0] == 0
    assert samples[0].values[-1] == 999
    path.write_bytes(b"")
    assert tensor_sample(path, 0, 0, (0,), torch.float32).values == ()


@pytest.mark.very_slow
@pytest.mark.parametrize("name", ["--first=first | merge out result --auto", " | merge out result --base=copy"])
def test_uses_of_an_adapter_are_as_they_really_are(name: str, tmp_path: Path) -> None:
    (cell,) = [one for one in CELLS if one.name == name]
    wrong, said = judged(cell, json.loads(TRUTH.read_text(encoding="utf-8"))[name], tmp_path)
    assert not wrong, said
