from __future__ import annotations

import re

import pytest

from gonogo.evidence.environment.hardware import all_accelerators, find_accelerator, parse_machine
from gonogo.finding import UserError

GIB = 1 << 30


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("H100-80G", "H100-80G"),
        ("h100", "H100-80G"),
        ("NVIDIA H100 80GB HBM3", "H100-80G"),
        ("a100_80gb", "A100-80G"),
        ("A100-SXM4-40GB", "A100-40G"),
        ("4090", "RTX-4090"),
        ("rtx 4090", "RTX-4090"),
        ("NVIDIA GeForce RTX 3090", "RTX-3090"),
        ("Tesla T4", "T4"),
        ("910b4", "Ascend-910B4"),
        ("Ascend910B4-32G", "Ascend-910B4"),
        ("910B4-32G", "Ascend-910B4"),
        ("ascend_910b2c", "Ascend-910B2"),
        ("Ascend910B1", "Ascend-910B1"),
        ("H20", "H20"),
        ("A10", "A10"),
        ("L4", "L4"),
    ],
)
def test_names_and_aliases(name: str, found: str) -> None:
    assert find_accelerator(name).name == found


@pytest.mark.parametrize(
    ("name", "in_message"),
    [
        ("A100", "use one of A100-40G, A100-80G"),
        ("V100", "V100-16G, V100-32G"),
        ("910B", "Ascend-910B1, Ascend-910B2, Ascend-910B3, Ascend-910B4"),
        ("H10", "H100-80G"),
        ("H100-80", "H100-80G"),
        ("RTX-4900", "RTX-4090"),
        ("MI300X", "unknown GPU 'MI300X'"),
        ("", "unknown GPU ''"),
    ],
)
def test_unknown_names_offer_the_nearest(name: str, in_message: str) -> None:
    with pytest.raises(UserError) as caught:
        find_accelerator(name)
    assert in_message in caught.value.text.en
    assert repr(name) in caught.value.text.zh


@pytest.mark.parametrize(
    ("gpus", "count", "name"),
    [
        ("8xH100-80G", 8, "H100-80G"),
        ("8 x H100-80G", 8, "H100-80G"),
        ("16×4090", 16, "RTX-4090"),
        ("H100-80G", 4, "H100-80G"),
        ("4090", 4, "RTX-4090"),
        ("8", 8, "H100-80G"),
        (None, 4, "H100-80G"),
    ],
)
def test_machine(gpus: str | None, count: int, name: str) -> None:
    machine = parse_machine(gpus, None, None, default_count=4)
    assert (machine.count, machine.accelerator.name, machine.nodes, machine.host_bytes) == (count, name, 1, None)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1T", 1024 * GIB), ("512G", 512 * GIB), ("1.5TiB", 1536 * GIB), ("900 gb", 900 * GIB), ("2048M", 2 * GIB)],
)
def test_host_memory(text: str, size: int) -> None:
    assert parse_machine(None, 2, text, default_count=8).host_bytes == size


@pytest.mark.parametrize("text", ["512", "a lot", "-1T", "0G", "1P", ""])
def test_unreadable_host_memory(text: str) -> None:
    with pytest.raises(UserError, match="512G"):
        parse_machine(None, None, text, default_count=1)


def test_impossible_counts() -> None:
    with pytest.raises(UserError, match="at least one GPU"):
        parse_machine("0xH100", None, None, default_count=1)
    with pytest.raises(UserError, match="--nodes"):
        parse_machine(None, 0, None, default_count=1)
    with pytest.raises(UserError, match="unknown GPU"):
        parse_machine("8xH1000", None, None, default_count=1)


def test_table_is_sound() -> None:
    """What nvidia-smi's marketing size says bounds what torch reports; names and aliases are unique."""
    accelerators = all_accelerators()
    names = [name.lower() for a in accelerators for name in (a.name, *a.aliases)]
    assert len(names) == len(set(names))
    for a in accelerators:
        assert 0 < a.allowance_bytes < a.total_bytes // 8
        assert a.source
        sizes = re.findall(r"(\d+)GB?\b", " ".join((a.name, a.product, *a.aliases)).replace("A10G", ""))
        for gigabytes in map(int, sizes):
            assert 0.9 * gigabytes * 1e9 < a.total_bytes < 1.074 * gigabytes * 1e9
        if a.device_type == "cuda":
            assert a.compute_capability >= (7, 0)
