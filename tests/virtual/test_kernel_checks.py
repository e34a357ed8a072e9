"""What real kernels refuse, refused in their words: by torch's own CPU kernels where CUDA's say the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from virtual.worlds import virtual_session

from gonogo.virtual.failure import describe_failure

BF16, LONG = torch.bfloat16, torch.long
Case = Callable[[str], Any]


def ones(*shape: int, device: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(*shape, device=device, dtype=dtype)


AS_ON_THE_CPU: dict[str, Case] = {
    "linear": lambda d: nn.Linear(4, 2, device=d)(ones(2, 4, device=d, dtype=BF16)),
    "linear of three dimensions": lambda d: nn.Linear(4, 2, device=d)(ones(2, 3, 4, device=d, dtype=BF16)),
    "linear in half precision": lambda d: nn.Linear(4, 2, device=d, dtype=BF16)(ones(2, 4, device=d)),
    "linear of integers": lambda d: nn.Linear(4, 2, device=d)(ones(2, 4, device=d, dtype=LONG)),
    "linear of another width": lambda d: nn.Linear(4, 2, device=d)(ones(2, 3, device=d)),
    "products of a batch": lambda d: torch.bmm(ones(1, 2, 4, device=d), ones(1, 4, 2, device=d, dtype=BF16)),
    "attention's projections": lambda d: nn.MultiheadAttention(8, 2, device=d)(
        *[ones(2, 3, 8, device=d, dtype=BF16)] * 3
    ),
    "convolution of other channels": lambda d: nn.Conv2d(3, 4, 3, device=d)(ones(2, 4, 8, 8, device=d)),
    "in place": lambda d: ones(0, device=d).add_(ones(4, 4, device=d)),
    "out of place": lambda d: ones(2, 3, device=d) * ones(2, 4, device=d),
    "where": lambda d: torch.where(ones(3, device=d) > 0, ones(4, device=d), ones(3, device=d)),
    "a mask of attention": lambda d: F.scaled_dot_product_attention(
        *[ones(1, 2, 4, 8, device=d)] * 3, attn_mask=ones(1, 1, 4, 4, device=d, dtype=BF16)
    ),
    "gather": lambda d: ones(3, 4, device=d).gather(1, torch.zeros(4, 2, dtype=LONG, device=d)),
}  # fmt: skip
OF_CUDA: dict[str, tuple[Case, str]] = {
    "mm": (
        lambda d: ones(2, 4, device=d, dtype=BF16) @ ones(4, 2, device=d),
        "expected mat1 and mat2 to have the same dtype, but got: c10::BFloat16 != float",
    ),
    "mm of integers": (lambda d: ones(2, 2, device=d, dtype=LONG) @ ones(2, 2, device=d, dtype=LONG), "addmm_cuda"),
    "layer norm": (lambda d: nn.LayerNorm(4, device=d)(ones(2, 4, device=d, dtype=BF16)), "BFloat16 but found Float"),
    "layer norm in half precision": (
        lambda d: nn.LayerNorm(4, device=d, dtype=BF16)(ones(2, 4, device=d)), "Float but found BFloat16",
    ),
    "group norm": (
        lambda d: nn.GroupNorm(2, 4, device=d)(ones(2, 4, 3, device=d, dtype=BF16)), "BFloat16 but found Float",
    ),
    "convolution without bias": (
        lambda d: nn.Conv2d(3, 4, 3, device=d, bias=False)(ones(1, 3, 8, 8, device=d, dtype=BF16)),
        r"Input type \(torch.cuda.BFloat16Tensor\) and weight type \(torch.cuda.FloatTensor\) should be the same",
    ),
    "singular values": (lambda d: torch.linalg.svd(ones(3, 3, device=d, dtype=BF16)), "not implemented for 'BFloat16'"),
    "softmax of integers": (lambda d: ones(3, device=d, dtype=LONG).softmax(-1), '"host_softmax" not implemented'),
    "bits of floats": (lambda d: ones(3, device=d) & ones(3, device=d), '"bitwise_and_cuda" not implemented'),
}  # fmt: skip
TAKEN: dict[str, Case] = {
    "norm of a batch": lambda d: nn.BatchNorm2d(3, device=d)(ones(2, 3, 4, 4, device=d, dtype=BF16)),
    "norm by root mean square": lambda d: nn.RMSNorm(4, device=d)(ones(2, 4, device=d, dtype=BF16)),
    "norm without weights": lambda d: nn.LayerNorm(4, elementwise_affine=False)(ones(2, 4, device=d, dtype=BF16)),
    "bits of booleans": lambda d: ~(ones(3, device=d) > 0),
    "a sum": lambda d: ones(3, device=d) + ones(3, device=d, dtype=BF16),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", AS_ON_THE_CPU)
def test_words_are_those_of_the_real_kernels(name: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError) as real:
        AS_ON_THE_CPU[name]("cpu")
    with virtual_session(tmp_path), pytest.raises(RuntimeError) as found:
        AS_ON_THE_CPU[name]("cuda")
    assert str(found.value) == str(real.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_CUDA)
def test_what_cuda_alone_refuses(name: str, tmp_path: Path) -> None:
    case, words = OF_CUDA[name]
    with virtual_session(tmp_path), pytest.raises(RuntimeError, match=words):
        case("cuda")


@pytest.mark.parametrize("name", TAKEN)
def test_what_kernels_take(name: str, tmp_path: Path) -> None:
    with virtual_session(tmp_path):
        TAKEN[name]("cuda")


def test_under_autocast_kernels_are_given_one_dtype(tmp_path: Path) -> None:
    with virtual_session(tmp_path), torch.autocast("cuda", BF16):
        data = nn.Linear(4, 4, device="cuda")(ones(2, 3, 4, device="cuda"))
        assert data.dtype == BF16
        assert nn.LayerNorm(4, device="cuda")(data).dtype == torch.float32
        assert nn.GroupNorm(3, 3, device="cuda")(data).dtype == torch.float32
        assert nn.LSTM(4, 5, device="cuda")(data)[0].dtype == BF16
        assert nn.GRU(4, 5, device="cuda")(data)[0].dtype == BF16
        assert nn.Conv1d(3, 4, 3, device="cuda")(data).dtype == BF16
        grid = ones(1, 2, 2, 2, device="cuda")
        assert F.grid_sample(data[None, :1], grid).dtype == torch.float32


def test_autocast_refuses_cross_entropy_of_probabilities(tmp_path: Path) -> None:
    with virtual_session(tmp_path):
        chance, label = torch.full((4, 1), 0.5, device="cuda"), ones(4, 1, device="cuda")
        assert nn.BCELoss()(chance, label).dtype == torch.float32
        with torch.autocast("cuda", BF16):
            with pytest.raises(RuntimeError, match="BCELoss are unsafe to autocast"):
                nn.BCELoss()(chance, label)
            assert nn.BCEWithLogitsLoss()(chance, label).dtype == torch.float32
            assert nn.BCELoss()(chance.cpu(), label.cpu()).dtype == torch.float32
            with torch.autocast("cuda", enabled=False):
                assert nn.BCELoss()(chance, label).dtype == torch.float32


@pytest.mark.slow
@pytest.mark.parametrize(("accelerator", "has_fp8"), [("A100-80G", False), ("RTX-4090", True), ("H100-80G", True)])
def test_products_of_8_bit_floats_need_a_newer_gpu(accelerator: str, has_fp8: bool, tmp_path: Path) -> None:
    with virtual_session(tmp_path, name=accelerator):
        a, one = ones(16, 32, device="cuda").to(torch.float8_e4m3fn), ones(1, device="cuda").squeeze()
        if has_fp8:
            assert torch._scaled_mm(a, a.t(), one, one, out_dtype=BF16).shape == (16, 16)
        else:
            with pytest.raises(RuntimeError, match="only supported on CUDA devices with compute capability"):
                torch._scaled_mm(a, a.t(), one, one, out_dtype=BF16)


@pytest.mark.slow
@pytest.mark.parametrize(("made_for", "drawn_on"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_a_generator_draws_on_its_own_device_only(made_for: str, drawn_on: str, tmp_path: Path) -> None:
    def draws(device: str) -> list[Callable[[], Any]]:
        generator = torch.Generator(made_for)
        drawn = ones(4, device=device)
        return [
            lambda: torch.randn(4, generator=generator, device=device),
            lambda: torch.randperm(4, generator=generator, device=device),
            lambda: drawn.normal_(generator=generator),
        ]

    with virtual_session(tmp_path):
        for draw in draws(made_for):
            draw()
        ones(0, device=drawn_on).normal_(generator=torch.Generator(made_for))
        for draw in draws(drawn_on):
            with pytest.raises(RuntimeError, match=f"Expected a '{drawn_on}' device type for generator but found"):
                draw()


@pytest.mark.slow
def test_norms_that_are_compiled_take_weights_of_another_dtype(tmp_path: Path) -> None:
    with virtual_session(tmp_path):
        norm = torch.compile(nn.LayerNorm(4, device="cuda"))
        assert norm(ones(2, 4, device="cuda", dtype=BF16)).shape == (2, 4)
    with virtual_session(tmp_path), pytest.raises(RuntimeError, match="expected scalar type"):
        nn.LayerNorm(4, device="cuda")(ones(2, 4, device="cuda", dtype=BF16))


def test_a_type_of_tensor_is_named_as_the_accelerators(tmp_path: Path) -> None:
    with virtual_session(tmp_path) as session:
        weight = ones(3, device="cuda").requires_grad_()
        result = weight.exp()
        result.mul_(2)
        with pytest.raises(RuntimeError) as raised:
            result.sum().backward()
        failure = describe_failure(raised.value, session.life, session.modules, ())
    assert "[torch.cuda.FloatTensor [3]], which is output 0 of Exp" in failure.message
