"""Cloud instances as --gpus takes them."""

from __future__ import annotations

import pytest

from gonogo.evidence.environment.hardware import find_accelerator, parse_machine
from gonogo.evidence.environment.instances import all_instance_types, parse_instance_type
from gonogo.finding import UserError

GIB = 1 << 30


def test_every_instance_has_an_accelerator_a_size_and_a_source() -> None:
    names = [instance.name for instance in all_instance_types()]
    assert len(names) == len(set(names)) > 100
    for instance in all_instance_types():
        accelerator = find_accelerator(instance.accelerator)
        assert accelerator.name == instance.accelerator
        assert 1 <= instance.count <= 16
        assert instance.host_bytes > instance.count * 10 * GIB
        assert "https://" in instance.source
        assert parse_instance_type(instance.name) == (instance, None)
        with pytest.raises(UserError):
            find_accelerator(instance.name)  # no name is both


@pytest.mark.parametrize(
    ("gpus", "nodes", "machine"),
    [
        ("p5.48xlarge", None, ("H100-80G", 8, 1, 2048)),
        ("2xp5.48xlarge", None, ("H100-80G", 8, 2, 2048)),
        ("P4DE.24XLARGE", 3, ("A100-80G", 8, 3, 1152)),
        ("nd96isr_h100_v5", None, ("H100-80G", 8, 1, 1900)),
        ("Standard_ND96isr_H200_v5", None, ("H200", 8, 1, 1850)),
        ("a3-highgpu-8g", None, ("H100-80G", 8, 1, 1872)),
        ("ecs.gn7e-c16g1.32xlarge", None, ("A100-80G", 8, 1, 1000)),
        ("2 x gpu_8x_h100_sxm5", 2, ("H100-80G", 8, 2, 1800)),
    ],
)
def test_an_instance_is_its_machine(gpus: str, nodes: int | None, machine: tuple[str, int, int, int]) -> None:
    found = parse_machine(gpus, nodes, None, 1)
    assert (found.accelerator.name, found.count, found.nodes, (found.host_bytes or 0) // GIB) == machine


def test_host_memory_that_is_given_wins() -> None:
    assert parse_machine("p5.48xlarge", None, "512G", 1).host_bytes == 512 * GIB


@pytest.mark.parametrize(
    ("gpus", "nodes", "said"),
    [
        ("2xp5.48xlarge", 3, "--gpus 2xp5.48xlarge means 2 nodes, but --nodes is 3"),
        ("p5.44xlarge", None, "the closest known are p5.4xlarge, p5.48xlarge"),
        ("0xp5.48xlarge", None, "needs at least one GPU"),
    ],
)
def test_what_contradicts_or_is_unknown_is_said(gpus: str, nodes: int | None, said: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_machine(gpus, nodes, None, 1)
    assert said in caught.value.text.en
