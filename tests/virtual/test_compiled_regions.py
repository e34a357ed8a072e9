"""Compiled functions without gradients take what Inductor plans for them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from virtual.worlds import virtual_session

from gonogo.virtual.operators import compiled_regions

MIB = 1 << 20


def swiglu(both: torch.Tensor) -> torch.Tensor:
    gate, value = torch.chunk(both, 2, -1)
    return F.silu(gate) * value


def loss_of_chunk(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """Liger-Kernel's way: gradients within the compiled function, added to those of the chunks before."""

    def loss(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy((x @ weight.t()).float(), target, reduction="sum")

    of_x, of_weight = torch.func.grad(loss, argnums=(0, 1))(x, weight)
    total.add_(of_weight)
    return of_x


def normalized_attention(q: torch.Tensor) -> torch.Tensor:
    """An operator with several results, which the compiler leaves to PyTorch, between two that it fuses."""
    return F.scaled_dot_product_attention(q * 2, q * 2, q * 2, is_causal=True) * 3


def taken(function: Callable[..., Any], *given: Any) -> tuple[int, int]:
    """MiB by which the function's peak exceeds what was there before, and what is left of it."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    with torch.no_grad():
        result = function(*given)
    left = torch.cuda.memory_allocated() - before
    del result
    return round((torch.cuda.max_memory_allocated() - before) / MIB), round(left / MIB)


def bfloat16(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, device="cuda", dtype=torch.bfloat16)


@pytest.mark.slow
def test_a_chain_of_elementwise_operators_is_one_kernel(tmp_path: Path) -> None:
    with virtual_session(tmp_path):
        both = bfloat16(8192, 8192 * 4)
        assert taken(swiglu, both) == (512, 256)  # silu's result, and the product
        assert taken(torch.compile(swiglu), both) == (256, 256)


@pytest.mark.slow
def test_a_loss_keeps_its_logits_in_their_own_dtype(tmp_path: Path) -> None:
    """As written: logits in bfloat16 and float32, log-softmax, its gradient, all of 0.25 or 0.5 GiB."""
    with virtual_session(tmp_path):
        x, weight = bfloat16(1024, 2048), bfloat16(131072, 2048)
        given = (x, weight, torch.zeros(1024, dtype=torch.long, device="cuda"), torch.zeros_like(weight))
        taken(loss_of_chunk, *given)  # allocates cuBLAS's workspaces
        as_written, left = taken(loss_of_chunk, *given)
        planned, left_too = taken(torch.compile(loss_of_chunk), *given)
        assert as_written >= 1536
        assert planned == 256 + 512 + 4  # logits, overwritten by their gradient; the weight's gradient; x's
        assert left == left_too == 4


@pytest.mark.slow
def test_results_of_other_operators_count(tmp_path: Path) -> None:
    with virtual_session(tmp_path):
        q = bfloat16(4, 32, 16384, 128)
        as_written, left = taken(normalized_attention, q)
        planned, left_too = taken(torch.compile(normalized_attention), q)
        assert left == left_too == 512
        assert 2 * 512 <= planned < as_written


@pytest.mark.slow
def test_what_the_compiler_refuses_counts_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise NotImplementedError

    monkeypatch.setattr(compiled_regions, "plan", refuse)
    monkeypatch.setattr(compiled_regions, "_PLANS", {})
    with virtual_session(tmp_path):
        both = bfloat16(8192, 8192 * 4)
        assert taken(torch.compile(swiglu), both) == taken(swiglu, both)


@pytest.mark.slow
def test_memory_freed_within_is_free_afterwards(tmp_path: Path) -> None:
    with virtual_session(tmp_path):
        both = bfloat16(8192, 8192 * 4)
        before = torch.cuda.memory_allocated()
        compiled = torch.compile(swiglu)
        for _ in range(3):
            assert taken(compiled, both) == (256, 256)
        assert torch.cuda.memory_allocated() == before


@pytest.mark.slow
def test_the_stand_in_for_triton_is_hidden_from_the_compiler(tmp_path: Path) -> None:
    """It has the names that programs need, not those of the compiler; its own process, as imports are for good."""
    stand_in = Path(compiled_regions.__file__).parents[1] / "stand_ins" / "with_triton"
    given = f"sys.path[:0] = [{str(stand_in)!r}, {str(Path(__file__).parents[1])!r}]"
    code = f"""
import sys
{given}
import triton, triton.language
from pathlib import Path
from virtual import test_compiled_regions as t
with t.virtual_session(Path({str(tmp_path)!r})):
    print(t.taken(t.torch.compile(t.swiglu), t.bfloat16(8192, 8192 * 4)), sys.modules["triton"].__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "(256, 256) triton" in done.stdout, done.stderr


def test_small_functions_are_not_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing the compiler takes seconds."""
    asked: list[Any] = []
    monkeypatch.setattr(compiled_regions, "plan", lambda *given: asked.append(given))
    with virtual_session(tmp_path):
        assert taken(torch.compile(swiglu), bfloat16(1024, 8192)) == (16, 8)
    assert not asked
