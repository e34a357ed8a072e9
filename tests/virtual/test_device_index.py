"""A device by its index, where torch knows of no accelerator: ``torch.device(0)``, ``.to(0)``, ``device=0``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.weights import device_index


@pytest.fixture
def installed() -> Iterator[None]:
    patches = Patches()
    device_index.install(patches)
    yield
    patches.undo()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("arguments", [(1,), (1, torch.float16), ("cuda:1",)])
def test_an_index_is_the_accelerators(arguments: tuple[Any, ...]) -> None:
    asked: Any = torch._C._nn._parse_to  # type: ignore[attr-defined]
    assert asked(*arguments)[0] == torch.device("cuda", 1)
    assert asked(device=1)[0] == torch.device(1) == torch.device("cuda:1")
    assert isinstance(torch.device(1), torch.device)
    assert asked("cpu")[0] == torch.device("cpu")
