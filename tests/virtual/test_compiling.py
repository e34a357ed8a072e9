"""``torch.compile`` of a function begins when the function is first called."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from virtual.worlds import virtual_session

from gonogo.virtual.operators import compiling


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What torch's own ``compile`` was given, in order."""
    calls: list[Any] = []

    def real(model: Any = None, **options: Any) -> Any:
        calls.append(model)
        return model if model is not None else lambda function: torch.compile(function, **options)

    monkeypatch.setattr(torch, "compile", real)
    undo = compiling.install()
    yield calls
    undo()


def twice(number: int) -> int:
    return number * 2


def test_a_function_is_compiled_once_and_when_it_is_called(begun: list[Any]) -> None:
    compiled = torch.compile(twice, dynamic=True)
    assert compiled.__name__ == "twice"
    assert begun == []
    assert [compiled(2), compiled(3)] == [4, 6]
    assert begun == [twice]


def test_all_else_is_compiled_at_once(begun: list[Any]) -> None:
    module = torch.nn.Linear(2, 2)
    torch.compile(module)
    torch.compile(twice, backend="eager")
    assert begun == [module, twice]


def test_a_module_is_wrapped_as_in_a_run(tmp_path: Path) -> None:
    """Its parameters go by ``_orig_mod.``, and the module inside can be had back."""
    bare = torch.nn.Linear(2, 2)
    real = torch.compile(bare, backend="eager")
    with virtual_session(tmp_path):
        module = torch.nn.Linear(2, 2, device="cuda")
        compiled = torch.compile(module)
        assert type(compiled) is type(real)
        assert list(compiled.state_dict()) == list(real.state_dict())
        assert compiled._orig_mod is module
        compiled(torch.ones(1, 2, device="cuda")).sum().backward()
        assert module.weight.grad is not None


def refused(function: Any, *given: Any) -> bool:
    """Whether it ends as the compiler's own refusal does."""
    try:
        function(*given)
    except torch._dynamo.exc.Unsupported as error:
        return "Data-dependent branching" in str(error)
    return False


def halved(x: torch.Tensor) -> torch.Tensor:
    while x.max() > 1:
        x = x / 2
    return x


def halved_when_run(x: torch.Tensor) -> torch.Tensor:
    return x / 2 if not torch.compiler.is_compiling() and x.max() > 1 else x


def halved_by_shape(x: torch.Tensor) -> torch.Tensor:
    return x / 2 if x.shape[0] > 1 else x


ASSERTS = "def asserted(x):\n    assert (x > 0).all()\n    return x / 2"
"""As text: pytest makes other code of an assert that stands in a test's file."""


class Checked(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x)
        return torch.zeros_like(out) if torch.isnan(out).any() else out


@pytest.mark.slow
def test_a_branch_on_a_tensors_values_is_refused_where_the_graph_is_to_be_whole(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(ASSERTS, names)
    real = torch.compile(halved, fullgraph=True, backend="eager")
    assert refused(real, torch.ones(2))
    assert refused(torch.compile(Checked(2, 2), fullgraph=True, backend="eager"), torch.ones(1, 2))
    assert not refused(torch.compile(names["asserted"], fullgraph=True, backend="eager"), torch.ones(2))
    with virtual_session(tmp_path):
        one = torch.ones(2, device="cuda")
        assert refused(torch.compile(halved, fullgraph=True), one)
        assert refused(torch.compile(fullgraph=True)(halved), one)
        assert not refused(torch.compile(halved), one)  # the compiler breaks the graph there
        assert not refused(halved, one)  # the function itself is not compiled
        for well in (halved_when_run, halved_by_shape, names["asserted"]):
            assert not refused(torch.compile(well, fullgraph=True), one)
        module = Checked(2, 2, device="cuda")
        assert refused(torch.compile(module, fullgraph=True), torch.ones(1, 2, device="cuda"))
        assert not refused(module, torch.ones(1, 2, device="cuda"))
    assert "__bool__" not in vars(torch.Tensor)


NUMBERS = """\
def halved_by_item(x): return x / 2 if x.sum().item() > 1 else x
def halved_by_float(x): return x / 2 if float(x.sum()) > 1 else x
def scaled_by_item(x): return x * x.sum().item()
def asserted_item(x):
    assert x.sum().item() > -5
    return x / 2
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "branches"),
    [("halved_by_item", True), ("halved_by_float", True), ("scaled_by_item", False), ("asserted_item", False)],
)
def test_a_number_that_is_read_may_decide_no_branch(tmp_path: Path, name: str, branches: bool) -> None:
    """As the real compiler has it, which follows a number and asserts it when the code runs."""
    names: dict[str, Any] = {}
    exec(NUMBERS, names)

    def fails(backend: dict[str, str], device: str) -> bool:
        compiled = torch.compile(names[name], fullgraph=True, **backend)
        try:
            compiled(torch.ones(2, device=device))
        except torch._dynamo.exc.TorchDynamoException:
            return True
        return False

    assert fails({"backend": "eager"}, "cpu") is branches
    with virtual_session(tmp_path):
        assert fails({}, "cuda") is branches
    assert "item" not in vars(torch.Tensor)


@pytest.mark.slow
@pytest.mark.parametrize("of_a_block", [False, True])
def test_a_module_that_compiles_itself_may_have_no_break_either(tmp_path: Path, of_a_block: bool) -> None:
    """``block.compile(fullgraph=True)``, as fully_shard's examples have it: held against the real compiler."""

    def compiled(device: str) -> torch.nn.Module:
        block = Checked(2, 2, device=device)
        whole = torch.nn.Sequential(block) if of_a_block else block
        block.compile(fullgraph=True, **({"backend": "eager"} if device == "cpu" else {}))
        return whole

    assert refused(compiled("cpu"), torch.ones(1, 2))
    with virtual_session(tmp_path):
        one = torch.ones(1, 2, device="cuda")
        assert refused(compiled("cuda"), one)
        plain = Checked(2, 2, device="cuda")
        plain.compile()
        assert not refused(plain, one)
        assert not refused(Checked(2, 2, device="cuda"), one)


def then_scaled(softmax: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """As Megatron-Core's fused cross entropy makes its gradient of what it has kept."""
    softmax.view(-1, softmax.shape[-1])[rows, rows] -= 1
    softmax.mul_(0.5)
    return softmax.bfloat16()


def at_last(softmax: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    softmax.mul_(0.5)
    softmax[rows, rows] = 0
    return softmax.bfloat16()


@pytest.mark.slow
@pytest.mark.parametrize(("function", "copies"), [(then_scaled, 1), (at_last, 0)])
def test_an_input_written_by_position_is_copied_where_another_write_follows(
    tmp_path: Path, function: Any, copies: int
) -> None:
    with virtual_session(tmp_path):
        softmax, rows = torch.empty(1024, 1024, device="cuda"), torch.arange(1024, device="cuda")
        for compile_, copied in ((lambda function: function, 0), (torch.compile, copies)):
            run = compile_(function)
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            run(softmax, rows)
            more = torch.cuda.max_memory_allocated() - before
            assert more // (1 << 20) == 2 + 4 * copied
            assert torch.cuda.memory_allocated() == before
