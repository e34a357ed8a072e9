"""Apex as Megatron-Core asks for it: found for it alone; what its layer norms keep; gradients added up in a product."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from virtual.worlds import virtual_session

from gonogo.virtual.ranks.session import Session
from gonogo.virtual.unsupported import UnsupportedOperator

ROWS, SIZE = 256, 1024


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with virtual_session(tmp_path_factory.mktemp("scratch")) as session:
        yield session


@pytest.fixture
def megatron(session: Session) -> Iterator[None]:
    """As if the program had imported Megatron-Core."""
    sys.modules["megatron.core"] = ModuleType("megatron.core")
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] in ("apex", "megatron")]:
            del sys.modules[name]


def on_gpu(*shape: int, grad: bool = False) -> Any:
    return torch.ones(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=grad)


def test_it_is_there_for_megatron_core_alone(session: Session) -> None:
    assert find_spec("apex") is None


def test_other_parts_of_it_are_missing(megatron: None) -> None:
    assert find_spec("apex") is not None
    with pytest.raises(ImportError):
        importlib.import_module("apex.optimizers")


@pytest.mark.parametrize("of_output", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_layer_norm_keeps_its_input_or_its_output(megatron: None, persistent: bool, of_output: bool) -> None:
    if persistent:
        function = importlib.import_module("apex.contrib.layer_norm.layer_norm").FastLayerNormFN
    else:
        function = importlib.import_module("apex.normalization.fused_layer_norm").FusedLayerNormAffineFunction
    weight, bias = on_gpu(SIZE, grad=True), on_gpu(SIZE, grad=True)
    inputs = on_gpu(ROWS, SIZE, grad=True)
    settings = (1e-5, of_output) if persistent else (torch.Size([SIZE]), 1e-5, of_output)
    before = torch.cuda.memory_allocated()
    out = function.apply(inputs, weight, bias, *settings)
    statistics = (1 if of_output else 2) * ROWS * 4
    assert torch.cuda.memory_allocated() - before == ROWS * SIZE * 2 + statistics
    out.sum().backward()
    assert inputs.grad.shape == inputs.shape
    assert weight.grad.shape == bias.grad.shape == (SIZE,)


def test_weights_gradients_are_added_up_in_place(session: Session) -> None:
    add = importlib.import_module("fused_weight_gradient_mlp_cuda").wgrad_gemm_accum_fp32
    main = torch.zeros(8, 16, device="cuda")
    before = torch.cuda.memory_allocated()
    inputs, gradient = on_gpu(4, 16), on_gpu(4, 8)
    held = torch.cuda.memory_allocated() - before
    add(inputs, gradient, main)
    assert torch.cuda.memory_allocated() - before == held
    assert session.mode.known_values(main) is None
    with pytest.raises(RuntimeError, match="main_grad must have shape"):
        add(inputs, gradient, torch.zeros(16, 8, device="cuda"))


def imported_by_a_program(text: str, folder: Path) -> ModuleType:
    path = folder / "program_with_apex.py"
    path.write_text(text)
    spec = spec_from_file_location("program_with_apex", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def without_megatron(session: Session) -> Iterator[None]:
    finders = list(sys.meta_path)
    yield
    sys.meta_path[:] = finders
    for name in [name for name in sys.modules if name.partition(".")[0] == "apex"]:
        del sys.modules[name]


PROGRAM = """
import torch
from apex import amp
from apex.optimizers import FusedAdam
from apex.parallel import LARC

def train(level):
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8)).cuda()
    optimizer = LARC(FusedAdam(model.parameters(), lr=1e-3))
    model, optimizer = amp.initialize(model, optimizer, opt_level=level)
    for _ in range(2):
        optimizer.zero_grad()
        out = model(torch.ones(4, 64, device="cuda"))
        with amp.scale_loss(out.square().mean(), optimizer) as scaled:
            scaled.backward()
        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
        optimizer.step()
    return model, optimizer, out
"""


@pytest.mark.parametrize(
    ("level", "weights", "output"),
    [("O0", "float32", "float32"), ("O1", "float32", "float16"), ("O2", "float16", "float32"),
     ("O3", "float16", "float32")],
)  # fmt: skip
def test_a_program_that_needs_it_trains(
    without_megatron: None, session: Session, tmp_path: Path, level: str, weights: str, output: str
) -> None:
    program = imported_by_a_program(PROGRAM, tmp_path)
    try:
        model, optimizer, out = program.train(level)
    finally:
        if (casts := sys.modules["apex.amp"]._State.autocast) is not None:
            casts.__exit__(None, None, None)
    masters = [one for group in optimizer.param_groups for one in group["params"]]
    assert {str(one.dtype) for one in model.parameters()} == {f"torch.{weights}"}
    assert str(out.dtype) == f"torch.{output}"
    assert {one.dtype for one in masters} == {torch.float16 if level == "O3" else torch.float32}
    assert {len(optimizer.state[one]) for one in masters} == {3}
    assert any("NVIDIA's Apex" in one.what for one in session.ledger.entries())


def test_what_has_no_implementation_says_so(without_megatron: None, tmp_path: Path) -> None:
    program = imported_by_a_program("from apex.fp16_utils import FP16_Optimizer\nmake = FP16_Optimizer\n", tmp_path)
    with pytest.raises(UnsupportedOperator, match="Apex is not installed here"):
        program.make(None)
    with pytest.raises(ImportError):
        imported_by_a_program("from apex.amp import no_such_name\n", tmp_path)


def test_a_program_with_another_way_takes_that(without_megatron: None, tmp_path: Path) -> None:
    text = "try:\n    from apex import amp\nexcept ImportError:\n    amp = None\n"
    assert imported_by_a_program(text, tmp_path).amp is None
