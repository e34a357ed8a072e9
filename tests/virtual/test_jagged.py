"""Jagged nested tensors on accelerators, as in verl: values and gradients as on a CPU, and the process lives on."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from virtual.worlds import virtual_session

LENGTHS = (3, 5, 2)
_PROGRAMS = {
    "made of lists": "torch.nested.nested_tensor([[1, 2], [3, 4, 5]], layout=torch.jagged, device=device)",
    "made of a tensor": "torch.nested.as_nested_tensor(torch.arange(6, device=device).view(2, 3), layout=torch.jagged)",
    "made of offsets": "torch.nested.nested_tensor_from_jagged(*on_device(torch.arange(6), torch.tensor([0, 2, 6])))",
    "made of lengths": (
        "torch.nested.nested_tensor_from_jagged(torch.arange(6).to(device), lengths=torch.tensor([2, 4]).to(device))"
    ),
    "with holes": (
        "torch.nested.nested_tensor_from_jagged("
        "*on_device(torch.arange(10), torch.tensor([0, 3, 7, 10]), torch.tensor([2, 4, 1])))"
    ),
    "narrowed": (
        "torch.nested.narrow(torch.arange(12, device=device).view(3, 4), 1, torch.tensor([0, 1, 0]).to(device), "
        "torch.tensor([2, 3, 4]).to(device), layout=torch.jagged)"
    ),
    "back on the CPU": "[ids.cpu(), ids.to('cpu', torch.float32), ids.bool(), ids.bfloat16().float()]",
    "rows": "[ids[0], ids[-1], *ids.unbind(), len(ids), ids.size(0), [row.sum().item() for row in ids]]",
    "padded": (
        "[torch.nested.to_padded_tensor(ids, 7, output_size=(3, 6)), rows.to_padded_tensor(-1.0), ids.offsets().diff()]"
    ),
    "lengths": "[rows._get_min_seqlen(), rows._get_max_seqlen(), ids.offsets().tolist(), ids.numel()]",
    "pointwise": "[ids + 1, ids * ids, -ids, ids / 2, ids > 1, ids.masked_fill(ids > 1, 0), torch.zeros_like(ids)]",
    "reduced": "[rows.sum(-1), rows.sum(1), rows.mean(1), rows.amax(1), rows.sum(), torch.softmax(rows, -1)]",
    "laid out": "[rows.transpose(1, 2).shape[1], ids.unsqueeze(-1).squeeze(-1), *rows.chunk(2, -1), *rows.chunk(3, 0)]",
    "products": "[rows @ torch.ones(4, 2, device=device), torch.nn.functional.layer_norm(rows, (4,))]",
    "in place": "[rows.mul_(2.0), torch.zeros_like(rows).copy_(rows), rows.fill_(3.0)]",
    "copied": "[copy.deepcopy(ids), pickle.loads(pickle.dumps(ids)), ids.clone(), ids.contiguous(), ids.detach()]",
    "gradient of a sum": "gradient(lambda rows: (rows * 2).sum())",
    "gradient of padding": "gradient(lambda rows: rows.to_padded_tensor(0.0).square().sum())",
    "gradient of rows": "gradient(lambda rows: sum(row.square().sum() for row in rows.unbind()))",
}
_PRELUDE = """
import copy, pickle
import torch
def shown(value):
    if isinstance(value, torch.Tensor):
        if value.is_nested:
            return [str(value.layout), str(value.dtype), [shown(row) for row in value.unbind()]]
        return [list(value.shape), str(value.dtype), value.detach().cpu().tolist()]
    return [shown(one) for one in value] if isinstance(value, list | tuple) else value
def on_device(*tensors):
    return [tensor.to(device) for tensor in tensors]
def jagged(make):
    return torch.nested.nested_tensor([make(n) for n in (3, 5, 2)], layout=torch.jagged, device=device)
def gradient(loss):
    values = torch.arange(40.0, device=device).view(10, 4).requires_grad_()
    loss(torch.nested.nested_tensor_from_jagged(values, ids.offsets())).backward()
    return values.grad
"""
_OPERANDS = "ids = jagged(torch.arange); rows = jagged(lambda n: torch.arange(4.0 * n).view(n, 4))"


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the programs give on a CPU, without gonogo."""
    code = f"device = 'cpu'\n{_PRELUDE}\n"
    code += "".join(f"{_OPERANDS}; print({name!r}, shown({text}), sep='=')\n" for name, text in _PROGRAMS.items())
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = (line.partition("=") for line in done.stdout.splitlines())
    return {name: ast.literal_eval(shown) for name, _, shown in lines}


@pytest.fixture(autouse=True)
def session(truth: dict[str, Any], tmp_path: Path) -> Iterator[None]:
    with virtual_session(tmp_path):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("name", _PROGRAMS)
def test_it_is_what_a_cpu_computes(name: str, truth: dict[str, Any]) -> None:
    names: dict[str, Any] = {"device": "cuda"}
    exec(f"{_PRELUDE}\n{_OPERANDS}\nanswer = shown({_PROGRAMS[name]})", names)
    assert names["answer"] == truth[name]


def _rows() -> torch.Tensor:
    rows: torch.Tensor = torch.nested.as_nested_tensor([torch.arange(n) for n in LENGTHS], layout=torch.jagged)
    return rows


def test_rows_of_a_collator_know_their_device() -> None:
    rows = _rows()
    assert (rows.device.type, rows.is_cuda, rows.is_pinned()) == ("cpu", False, False)
    pinned = rows.pin_memory()
    assert (pinned.is_nested, pinned.is_pinned()) == (True, True)
    moved = pinned.to("cuda:1", non_blocking=True)
    assert (str(moved.device), moved.is_cuda, moved.is_cpu, moved.is_meta, moved.get_device()) == (
        "cuda:1", True, False, False, 1,
    )  # fmt: skip
    assert moved.offsets().diff().tolist() == list(LENGTHS)
    padded = torch.nested.to_padded_tensor(moved, 0.0, output_size=(3, 6))
    assert (padded.shape, str(padded.device)) == ((3, 6), "cuda:1")


@pytest.mark.slow
def test_a_loss_of_jagged_scores_has_gradients() -> None:
    rows = _rows().to("cuda")
    embedding = torch.nn.Embedding(10, 4, device="cuda")
    scores = embedding(rows.values()).float().sum(-1)
    jagged = torch.nested.nested_tensor_from_jagged(scores, rows.offsets())  # in C++ with a device that it has to know
    assert jagged.requires_grad
    mask = torch.nested.nested_tensor_from_jagged(torch.ones(10, device="cuda"), rows.offsets())
    (jagged * mask).values().sum().backward()
    assert embedding.weight.grad is not None
    assert (embedding.weight.grad.shape, embedding.weight.grad.device.type) == ((10, 4), "cuda")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_attention_of_jagged_rows_runs_on_the_fused_kernels(dtype: torch.dtype) -> None:
    rows = torch.nested.nested_tensor(
        [torch.ones(n, 2, 8) for n in LENGTHS], layout=torch.jagged, device="cuda", dtype=dtype, requires_grad=True
    )
    heads = rows.transpose(1, 2)
    attended = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True).transpose(1, 2)
    attended.sum().backward()
    assert rows.grad is not None
    assert [tuple(row.shape) for row in rows.grad.unbind()] == [(n, 2, 8) for n in LENGTHS]


@pytest.mark.slow
def test_an_encoder_without_gradients_computes_its_layers() -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 1).cuda().eval()  # on GPUs its fast path makes strided nested tensors
    masked = torch.tensor([[False, False, False, True], [False, False, True, True]], device="cuda")
    with torch.no_grad():
        assert encoder(torch.ones(2, 4, 8, device="cuda"), src_key_padding_mask=masked).shape == (2, 4, 8)
