"""The compatibility tables: every row has a source and is well formed, and the questions asked of them have answers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gonogo.evidence.environment import compatibility
from gonogo.evidence.environment.compatibility import (
    bitsandbytes_cuda_versions,
    gpu_architecture,
    gpu_compute_capability,
    known_bugs_of_release,
    minimum_driver,
    pypi_torch_cuda,
    releases_with_model_type,
    requirements_of_release,
    supports_compute_capability,
    torch_build,
    torch_release,
)
from gonogo.evidence.environment.hardware import all_accelerators
from gonogo.evidence.environment.version_range import parse_specifier, parse_version
from gonogo.evidence.tables import TABLES

ROWS = sorted((TABLES / "compatibility").glob("*.json"))


@pytest.mark.parametrize("path", ROWS, ids=lambda path: path.stem)
def test_every_row_has_a_source(path: Path) -> None:
    table = json.loads(path.read_text(encoding="utf-8"))
    assert table["about"]
    for rows in table.values():
        for row in rows if isinstance(rows, list) and "source" not in table else []:
            sources = row.get("sources") or [row["source"]]
            assert all(source.startswith("https://") for source in sources), row


@pytest.mark.parametrize("path", ROWS, ids=lambda path: path.stem)
def test_every_specifier_is_one(path: Path) -> None:
    for word in re.findall(r'"([<>=!~][^"]*)"', path.read_text(encoding="utf-8")):
        assert parse_specifier(word) is not None, word


def test_torch() -> None:
    assert pypi_torch_cuda("2.1.0") == "12.1"
    assert pypi_torch_cuda("2.5.1") == "12.4"
    assert pypi_torch_cuda("2.99") is None
    assert pypi_torch_cuda("2.4.0.dev20240501") is None
    release = torch_release("2.3.1+cu118")
    assert release is not None
    assert release.python == ("3.8", "3.12")


def test_cards_and_builds() -> None:
    old, new = torch_build("11.7"), torch_build("12.8", "2.8.0")
    assert old is not None
    assert new is not None
    assert supports_compute_capability(old, (8, 0))
    assert supports_compute_capability(old, (8, 9)), "kernels of 8.6 run on 8.9"
    assert not supports_compute_capability(old, (9, 0))
    assert supports_compute_capability(new, (12, 0))
    assert not supports_compute_capability(new, (6, 1))
    assert torch_build("12.8") is None, "not the same for all releases of torch"
    assert torch_build("10.2") is None


def test_drivers() -> None:
    row = minimum_driver("12.4")
    assert row is not None
    assert row.driver == "525"
    assert minimum_driver("10.2").driver == "440.33"  # type: ignore[union-attr]
    assert minimum_driver("9.9") is None


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA A100-SXM4-80GB", (8, 0)),
        ("NVIDIA A10G", (8, 6)),
        ("NVIDIA A10", (8, 6)),
        ("Tesla V100-SXM2-32GB", (7, 0)),
        ("NVIDIA GeForce RTX 4090 D", (8, 9)),
        ("NVIDIA GeForce RTX 3080 Ti Laptop GPU", (8, 6)),
        ("NVIDIA RTX 6000 Ada Generation", (8, 9)),
        ("NVIDIA RTX A6000", (8, 6)),
        ("Quadro RTX 6000", (7, 5)),
        ("NVIDIA H100 80GB HBM3", (9, 0)),
        ("NVIDIA GeForce RTX 5090", (12, 0)),
        ("Some Future Card", None),
        ("Ascend910B2", None),
    ],
)
def test_capability_by_name(name: str, capability: tuple[int, int] | None) -> None:
    assert gpu_compute_capability(name) == capability


def test_capability_agrees_with_the_accelerators() -> None:
    for accelerator in all_accelerators():
        if accelerator.device_type == "cuda":
            assert gpu_compute_capability(accelerator.product) == accelerator.compute_capability, accelerator.product


def test_architectures() -> None:
    names = {(8, 0): "Ampere", (8, 6): "Ampere", (8, 9): "Ada Lovelace", (9, 0): "Hopper", (7, 0): "Volta"}
    for capability, name in names.items():
        row = gpu_architecture(capability)
        assert row is not None
        assert row.name == name
    assert gpu_architecture((20, 0)) is None


def test_model_types() -> None:
    firsts = {"mistral": "4.34.0", "qwen2": "4.37.0", "qwen2_vl": "4.45.0", "qwen2_5_vl": "4.49.0", "qwen3": "4.51.0"}
    for model_type, first in firsts.items():
        row = releases_with_model_type(model_type)
        assert row is not None
        assert (row.first, row.oldest) == (first, False)
    llama = releases_with_model_type("llama")
    assert llama is not None
    assert llama.oldest
    assert releases_with_model_type("no_such_model") is None
    assert parse_version(compatibility.newest_known_transformers()) is not None


def test_requirements_of_packages() -> None:
    [row] = requirements_of_release("transformers", "4.41.2")
    assert row.requires["accelerate"] == ">=0.21.0"
    assert row.requires["tokenizers"] == ">=0.19,<0.20"
    assert requirements_of_release("transformers", "4.0.0") == ()
    [flash] = requirements_of_release("flash-attn", "2.8.1")
    assert flash.capability == "8.0"
    cuda = bitsandbytes_cuda_versions("0.43.1")
    assert cuda is not None
    assert "12.1" in cuda[0]
    assert bitsandbytes_cuda_versions("9.9") is None


def test_known_faults() -> None:
    assert any("clip" in row.when for row in known_bugs_of_release("deepspeed", "0.14.2"))
    assert not any("clip" in row.when for row in known_bugs_of_release("deepspeed", "0.14.3"))
    assert [row.when for row in known_bugs_of_release("deepspeed", "0.18.0")] == ["zero2-accumulation", "zero2"]
    assert known_bugs_of_release("nothing") == ()
    for row in known_bugs_of_release("deepspeed"):
        assert row.effect_text.en
        assert re.search(r"[\u4e00-\u9fff]", row.effect_text.zh)
