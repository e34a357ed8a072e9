"""Calls of which a meta kernel, or C++ on its own, would say other things than the real kernels do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from virtual_worker import answers

SPARSE = "the operator's result is a sparse tensor, which a rehearsal does not support"
CALLS = """
def calls(device):
    table = torch.arange(6.0, device=device).reshape(2, 3)
    places = torch.tensor([1, 2])
    odds = torch.ones(50, 3, 15, device=device).log_softmax(-1)
    targets = torch.ones(3, 30, dtype=torch.long, device=device)
    squeezed = torch.ones(2, 1, 3, 1, device=device)
    squeezed.squeeze_((1, 3))
    return {
        "to dtype, copied": table.to(torch.float64, False, True) is not table,
        "to itself, copied": table.to(torch.float32, False, True) is not table,
        "to itself": table.to(torch.float32, False) is table,
        "selected from a number": list(table[0, 0].masked_select(torch.tensor(True, device=device)).shape),
        "nothing selected": list(table[0, 0].masked_select(torch.tensor(False, device=device)).shape),
        "split at places": [list(part.shape) for part in torch.tensor_split(table, places, dim=1)],
        "split by a number": [list(part.shape) for part in table.tensor_split(torch.tensor(2))],
        "lengths as numbers": list(torch.nn.functional.ctc_loss(odds, targets, (50, 50, 50), (30, 25, 20)).shape),
        "squeezed in place": list(squeezed.shape),
        "split by keyword": [list(p.shape) for p in table.tensor_split(tensor_indices_or_sections=places, dim=1)],
    }
"""


@pytest.mark.slow
def test_calls_give_what_real_ones_give(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    told = answers(folder, CALLS + "answer(cuda=calls('cuda'), cpu=calls('cpu'))")
    here: dict[str, object] = {}
    exec(CALLS + "real = calls('cpu')", {"torch": torch}, here)
    assert told == {"cuda": here["real"], "cpu": here["real"]}


@pytest.mark.slow
def test_what_only_an_accelerators_kernel_can_is_no_failure(tmp_path: Path) -> None:
    """The values of small tensors are computed on the CPU, whose kernels lack some of it."""
    folder = tmp_path / "here"
    folder.mkdir()
    told = answers(
        folder,
        """
        factors = torch.linalg.lu_factor(torch.ones(3, 5, device="cuda"), pivot=False)
        grad, output = torch.ones(2, 5, 5, device="cuda").unbind()
        half = torch.ops.aten._softmax_backward_data(grad, output, 0, torch.float16)
        answer(factors=list(factors[0].shape), half=[list(half.shape), str(half.dtype)])
        """,
    )
    assert told == {"factors": [3, 5], "half": [[5, 5], "torch.float16"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "operator", "why"),
    [
        (
            "torch.nn.LazyLinear(4)",
            "torch's lazy modules",
            "lazy parameters change their class once their shapes are known, which a rehearsal does not support",
        ),
        ("torch.ones(2, 2, device='cuda').to_sparse()", "aten._to_sparse.default", SPARSE),
        ("torch.ones(2, 2).to_sparse_csr()", "aten._to_sparse_csr.default", SPARSE),
        (
            "torch.nn.Embedding(4, 2, sparse=True, device='cuda')(torch.tensor([1]).cuda()).sum().backward()",
            "aten._sparse_coo_tensor_with_dims_and_tensors.default",
            SPARSE,
        ),
    ],
)
def test_what_can_not_be_rehearsed_is_named(call: str, operator: str, why: str, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    told = answers(
        folder,
        f"""
        from gonogo.virtual.unsupported import UnsupportedOperator
        try:
            {call}
        except UnsupportedOperator as error:
            answer(operator=error.operator, why=error.why.en)
        """,
    )
    assert told == {"operator": operator, "why": why}
