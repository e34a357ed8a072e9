"""What `import gonogo` offers to a program: devices checked, errors that name the tensor left behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import gonogo


@pytest.fixture
def two_devices() -> Iterator[None]:
    """Tensors that say that they are on a GPU, without one."""
    with FakeTensorMode(), torch.no_grad():  # autograd would ask for the GPU itself
        yield


def on_gpu(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, device="cuda:0")


def linear_on_gpu(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    layer.weight, layer.bias = nn.Parameter(on_gpu(outputs, inputs)), nn.Parameter(on_gpu(outputs))
    return layer


def test_import_brings_in_nothing_heavy() -> None:
    program = "import sys, gonogo; print({'torch', 'msgspec', 'transformers'} & set(sys.modules)); gonogo.Finding"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "set()\n"


def test_every_name_is_there() -> None:
    for name in gonogo.__all__:
        assert getattr(gonogo, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        gonogo.nothing  # noqa: B018


def test_tensors_on_one_device() -> None:
    assert gonogo.check_devices(torch.ones(2), [torch.ones(1), {"x": torch.ones(())}], nn.Linear(2, 2), 3) == "cpu"
    assert gonogo.check_devices() is None
    assert gonogo.check_devices("no tensor", None) is None


@pytest.mark.usefixtures("two_devices")
def test_a_tensor_left_behind_is_named() -> None:
    with pytest.raises(gonogo.MixedDevicesError) as raised:
        gonogo.check_devices(on_gpu(2, 3), torch.empty(3), on_gpu(1), names=["hidden", "mask", "bias"])
    error = raised.value
    assert isinstance(error, RuntimeError)
    assert error.odd == ("mask",)
    assert error.devices == {"hidden": "cuda:0", "mask": "cpu", "bias": "cuda:0"}
    assert str(error).splitlines() == [
        "mask is not on cuda:0",
        "> mask    cpu     float32  (3,)",
        "  hidden  cuda:0  float32  (2, 3)",
        "  bias    cuda:0  float32  (1,)",
    ]


@pytest.mark.usefixtures("two_devices")
def test_what_torch_lets_pass_passes() -> None:
    partitioned = nn.Parameter(torch.empty(0))
    partitioned.ds_status = SimpleNamespace(name="NOT_AVAILABLE")  # type: ignore[attr-defined]
    assert gonogo.check_devices(on_gpu(2), torch.tensor(1.0), partitioned) == "cuda:0"


@pytest.mark.usefixtures("two_devices")
def test_an_expected_device() -> None:
    assert gonogo.check_devices(on_gpu(2), expected="cuda") == "cuda"
    assert gonogo.check_devices(on_gpu(2), expected=torch.device("cuda:0")) == "cuda:0"
    with pytest.raises(gonogo.MixedDevicesError, match=r"x\['a'\]\[1\] is not on cuda:1"):
        gonogo.check_devices({"a": [1, on_gpu(2)]}, names=["x"], expected="cuda:1")


def test_names_have_to_match() -> None:
    with pytest.raises(ValueError, match="2 names for 1 arguments"):
        gonogo.check_devices(torch.ones(1), names=["a", "b"])


class Model(nn.Module):
    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first = first
        self.second = second
        self.register_buffer("table", torch.empty(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x) + self.table
        return self.second(hidden)  # type: ignore[no-any-return]


@pytest.mark.usefixtures("two_devices")
def test_a_layer_left_behind_is_named_before_torch_refuses_it() -> None:
    model = Model(linear_on_gpu(3, 4), nn.Linear(4, 4))
    model.table = on_gpu(4)
    with gonogo.DeviceGuard(model), pytest.raises(gonogo.MixedDevicesError) as raised:
        model(on_gpu(2, 3))
    assert str(raised.value).startswith("second (Linear): second.weight, second.bias are not on cuda:0\n")
    assert "input 0" in str(raised.value)


@pytest.mark.usefixtures("two_devices")
def test_other_exceptions_get_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    model = Model(linear_on_gpu(3, 4), linear_on_gpu(4, 4))
    with pytest.raises(RuntimeError) as raised, gonogo.DeviceGuard(model):
        model(on_gpu(2, 3))
    told = "\n".join(getattr(raised.value, "__notes__", [])) or str(raised.value)
    assert "in module Model (Model)" in told
    row = next(line for line in told.splitlines() if "self.table" in line)
    assert row.split() == ["self.table", "cpu", "float32", "(4,)", "buffer", "table"]


def test_a_guard_leaves_nothing_behind() -> None:
    model = Model(nn.Linear(3, 4), nn.Linear(4, 4))
    with gonogo.DeviceGuard(nn.Sequential(model)) as guard:
        model(torch.ones(2, 3))
        assert guard.attach() is guard
    assert not any(module._forward_pre_hooks for module in model.modules())
    with pytest.raises(TypeError, match="not str"):
        gonogo.DeviceGuard("model")


def test_ranks_can_be_compared_only_in_a_process_group() -> None:
    with pytest.raises(gonogo.UserError, match="no process group"):
        gonogo.compare_ranks()
