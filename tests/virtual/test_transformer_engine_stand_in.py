"""The stand-in for Transformer Engine's compiled module: outputs, workspaces and refusals as its C++ has them."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from virtual.worlds import virtual_session

from gonogo.virtual.kernels.transformer_engine.module import make_module
from gonogo.virtual.ranks.session import Session
from gonogo.virtual.tensor import VirtualTensor
from gonogo.virtual.unsupported import UnsupportedOperator

COMMON = """
import os

if "NVTE_PROJECT_BUILDING" not in os.environ:
    raise RuntimeError("Found empty `transformer-engine` meta package installed.")

def load_framework_extension(framework):
    raise FileNotFoundError("Could not find shared object file")
"""
PYTORCH = """
from transformer_engine.common import load_framework_extension

load_framework_extension("torch")
import transformer_engine_torch as tex
"""
CHOICE = """
from dataclasses import dataclass
import torch

@dataclass(eq=True)
class AttentionParams:
    qkv_type: type = torch.Tensor
"""


WRAPPER = """
import torch

class QuantizedTensor(torch.Tensor):
    def __new__(cls, shape, dtype, *, fake_dtype=None, requires_grad=False, device=None, stride=None):
        return torch.Tensor._make_wrapper_subclass(
            cls, shape, strides=stride, dtype=dtype, requires_grad=requires_grad, device=device
        )

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return args[0]
"""
IN_FP8 = """
import torch
from transformer_engine.pytorch.quantized_tensor import QuantizedTensor

class Quantizer:
    internal = True
    dtype = 7

    def __init__(self, rows=True, columns=True):
        self.rowwise_usage, self.columnwise_usage = rows, columns

class Float8Quantizer(Quantizer):
    pass

class Float8CurrentScalingQuantizer(Quantizer):
    pass

class Float8TensorStorage:
    def __new__(cls, *args, data, fp8_scale_inv, fp8_dtype, data_transpose=None, quantizer=None, **kwargs):
        made = object.__new__(cls) if cls is Float8TensorStorage else super().__new__(cls, *args, **kwargs)
        made._data, made._transpose, made._scale_inv = data, data_transpose, fp8_scale_inv
        return made

    def __init__(self, *args, **kwargs):
        pass

    def size(self):
        return self._data.shape if self._data is not None else (self._transpose.shape[-1], -1)

    @property
    def device(self):
        return self._scale_inv.device

class Float8Tensor(Float8TensorStorage, QuantizedTensor):
    pass
"""
IN_BLOCKS = """
from transformer_engine.pytorch.tensor.float8_tensor import Quantizer

class Float8BlockQuantizer(Quantizer):
    block_scaling_dim = 1

class Float8BlockwiseQTensorStorage:
    def __init__(self, rowwise_data, rowwise_scale_inv, columnwise_data, columnwise_scale_inv, **kwargs):
        self._rowwise_data, self._columnwise_data = rowwise_data, columnwise_data
        self._rowwise_scale_inv, self._columnwise_scale_inv = rowwise_scale_inv, columnwise_scale_inv

class Float8BlockwiseQTensor(Float8BlockwiseQTensorStorage):
    pass
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with virtual_session(tmp_path_factory.mktemp("scratch")) as session:
        yield session


@pytest.fixture(scope="module")
def tex(session: Session, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The module, as a package that loads its libraries in Transformer Engine's way gets it."""
    root = tmp_path_factory.mktemp("packages")
    for name, text in {
        "transformer_engine/__init__.py": "",
        "transformer_engine/common/__init__.py": COMMON,
        "transformer_engine/pytorch/__init__.py": PYTORCH,
        "transformer_engine/pytorch/quantized_tensor.py": WRAPPER,
        "transformer_engine/pytorch/tensor/__init__.py": "",
        "transformer_engine/pytorch/tensor/float8_tensor.py": IN_FP8,
        "transformer_engine/pytorch/tensor/float8_blockwise_tensor.py": IN_BLOCKS,
        "transformer_engine/pytorch/attention/__init__.py": "",
        "transformer_engine/pytorch/attention/dot_product_attention/__init__.py": "",
        "transformer_engine/pytorch/attention/dot_product_attention/utils.py": CHOICE,
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    sys.path.insert(0, str(root))
    try:
        yield importlib.import_module("transformer_engine.pytorch").tex
    finally:
        sys.path.remove(str(root))
        for name in [name for name in sys.modules if name.partition(".")[0] == "transformer_engine"]:
            del sys.modules[name]


def on_gpu(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Any:
    return torch.empty(*shape, device="cuda", dtype=dtype)


def peak_of(run: Any) -> int:
    """Bytes at the most during a call, beside what was there before."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = run()
    peak = torch.cuda.max_memory_allocated() - before
    del kept
    return peak


@pytest.mark.slow
def test_it_is_found_only_where_the_package_asks_for_it(tex: Any) -> None:
    assert "NVTE_PROJECT_BUILDING" not in os.environ
    assert tex.DType.kBFloat16 == 6
    assert sys.modules["transformer_engine_torch"] is tex
    common = sys.modules["transformer_engine.common"]
    with pytest.raises(FileNotFoundError, match="jax"):
        common.load_framework_extension("jax")  # type: ignore[attr-defined]


def test_attention_is_chosen_as_for_plain_tensors(tex: Any) -> None:
    name = "transformer_engine.pytorch.attention.dot_product_attention.utils"
    parameters = importlib.import_module(name).AttentionParams  # type: ignore[attr-defined]
    assert parameters(qkv_type=VirtualTensor).qkv_type is torch.Tensor
    assert parameters(qkv_type=VirtualTensor) == parameters()


def gemm(tex: Any, a: Any, trans_a: bool, b: Any, trans_b: bool, **given: Any) -> Any:
    settings = {"D": None, "bias": None, "gelu": False, "grad": False, "quantizer": None, "accumulate": False} | given
    return tex.generic_gemm(
        a, trans_a, b, trans_b, settings["D"], settings["quantizer"], tex.DType.kBFloat16, settings["bias"],
        tex.DType.kBFloat16, settings["gelu"], None, settings["grad"], on_gpu(1024, dtype=torch.uint8), 1024,
        settings["accumulate"], False,
    )  # fmt: skip


def test_products_have_the_shapes_of_row_major_operands(tex: Any) -> None:
    weight, inputs = on_gpu(24, 16), on_gpu(5, 2, 16)
    out, of_bias, before_gelu, _ = gemm(tex, weight, True, inputs, False)
    assert (tuple(out.shape), out.dtype, of_bias, before_gelu) == ((5, 2, 24), torch.bfloat16, None, None)
    out, _, before_gelu, _ = gemm(tex, weight, True, inputs, False, gelu=True)
    assert tuple(before_gelu.shape) == (5, 2, 24)
    gradient = on_gpu(10, 24)
    of_weight, of_bias, *_ = gemm(tex, on_gpu(10, 16), False, gradient, True, grad=True, bias=on_gpu(24))
    assert (tuple(of_weight.shape), tuple(of_bias.shape)) == ((24, 16), (24,))
    main = on_gpu(24, 16, dtype=torch.float32)
    assert gemm(tex, on_gpu(10, 16), False, gradient, True, D=main, accumulate=True)[0] is main


def test_products_refuse_what_the_real_ones_refuse(tex: Any) -> None:
    with pytest.raises(RuntimeError, match=r"Invalid matrix dimensions for GEMM \(A=\(24,16\), transa=1, B=\(5,8\)"):
        gemm(tex, on_gpu(24, 16), True, on_gpu(5, 8), False)
    with pytest.raises(RuntimeError, match="GEMM output has invalid dims"):
        gemm(tex, on_gpu(24, 16), True, on_gpu(5, 16), False, D=on_gpu(5, 16))
    with pytest.raises(RuntimeError, match="Expected a CUDA tensor"):
        gemm(tex, torch.empty(24, 16), True, on_gpu(5, 16), False)


def test_grouped_products_are_written_where_they_were_asked(tex: Any) -> None:
    weights, tokens = [on_gpu(24, 16)] * 2, [on_gpu(3, 16), on_gpu(7, 16)]
    biases, out = [on_gpu(24)] * 2, [on_gpu(10, 24)]
    given = (weights, True, tokens, False, out, tex.DType.kBFloat16, [3, 7], biases, tex.DType.kBFloat16, True, biases)
    workspace = [on_gpu(1024, dtype=torch.uint8)]
    assert tex.te_general_grouped_gemm(*given, False, workspace, 1024, False, False, 132) is biases
    with pytest.raises(RuntimeError, match="Invalid matrix dimensions"):
        tex.te_general_grouped_gemm(weights, False, *given[2:], False, workspace, 1024, False, False, 132)


def test_matrices_in_one_memory(tex: Any) -> None:
    sizes = torch.tensor([3, 0, 7], device="cuda")
    assert tex.splits_to_offsets(sizes, 16).tolist() == [0, 48, 48, 160]
    kinds = {"strides": [1, 16], "include_leading_zero": [False, True], "dtypes": [torch.int32, torch.int64]}
    on_device, (ends, begins) = tex.splits_to_offsets_multi(sizes.cpu(), torch.device("cuda"), **kinds)
    assert (on_device.device.type, ends.tolist(), begins.tolist()) == ("cuda", [3, 3, 10], [0, 48, 48, 160])
    first, second = tex.bulk_allocate([(3, 5), (2,)], [torch.bfloat16, torch.float32])
    assert (tuple(first.shape), second.dtype, first.cell is second.cell) == ((3, 5), torch.float32, True)
    with pytest.raises(RuntimeError, match="must have dtype int64"):
        tex.splits_to_offsets(sizes.int(), 16)


def test_norms_keep_their_statistics_in_float32(tex: Any) -> None:
    inputs, weight = on_gpu(5, 2, 16), on_gpu(16)
    kind = tex.DType.kBFloat16
    out, mean, deviation = tex.layernorm_fwd(inputs, weight, weight, 1e-5, None, None, kind, 0, False)
    assert (tuple(out.shape), tuple(mean.shape), deviation.dtype) == ((5, 2, 16), (10,), torch.float32)
    out, none, root = tex.rmsnorm_fwd(inputs, weight, 1e-5, None, None, kind, 0, False)
    assert (none, tuple(root.shape)) == (None, (10,))
    assert [tuple(one.shape) for one in tex.layernorm_bwd(out, inputs, mean, deviation, weight, 0, False)] == [
        (5, 2, 16), (16,), (16,),
    ]  # fmt: skip
    assert len(tex.rmsnorm_bwd(out, inputs, root, weight, 0, False)) == 2
    with pytest.raises(RuntimeError, match="same length as hidden size"):
        tex.rmsnorm_fwd(inputs, on_gpu(8), 1e-5, None, None, kind, 0, False)


def attention(tex: Any, layout: str, q: Any, k: Any, v: Any, *, backward: bool = False, fixed: bool = False) -> Any:
    layout_of, no_bias = tex.NVTE_QKV_Layout[f"NVTE_{layout}"], tex.NVTE_Bias_Type.NVTE_NO_BIAS
    kinds = (no_bias, tex.NVTE_Mask_Type.NVTE_CAUSAL_MASK, tex.NVTE_Softmax_Type.NVTE_VANILLA_SOFTMAX, (-1, 0), True)
    lengths = torch.tensor([0, 128, 256], dtype=torch.int32, device="cuda")
    if backward:
        out = torch.empty_like(q)
        kept = [on_gpu(2, 4, 128, 1, dtype=torch.float32), on_gpu(2, dtype=torch.int64)]
        given = (lengths, lengths, q, k, v, out, out, torch.bfloat16, kept, None, None, None, None, None, False)
        return tex.fused_attn_bwd(128, 128, 0.1, 0.0, True, layout_of, layout_of, *kinds, fixed, *given)
    rest = (torch.bfloat16, None, None, None, None, None, None, None, None, None, 16, False, False)
    return tex.fused_attn_fwd(
        128, 128, True, 0.1, 0.0, True, layout_of, *kinds, lengths, lengths, q, k, v, *rest
    )  # fmt: skip


def test_attention_keeps_a_number_for_each_query_and_the_random_state(tex: Any) -> None:
    q, k = on_gpu(128, 2, 4, 64), on_gpu(128, 2, 2, 64)
    out, statistics, state = attention(tex, "SBHD_SBHD_SBHD", q, k, k)
    assert (tuple(out.shape), tuple(statistics.shape)) == ((128, 2, 4, 64), (2, 4, 128, 1))
    assert (statistics.dtype, tuple(state.shape), state.dtype) == (torch.float32, (2,), torch.int64)
    packed = on_gpu(256, 4, 64)
    assert tuple(attention(tex, "THD_THD_THD", packed, packed, packed)[1].shape) == (256, 4, 1)


@pytest.mark.parametrize(("layout", "owners"), [("SBHD_SBHD_SBHD", 3), ("SBH3D", 1), ("SBHD_SBH2D", 2)])
def test_gradients_lie_together_as_the_layout_has_them(tex: Any, layout: str, owners: int) -> None:
    one = on_gpu(128, 2, 4, 64)
    gradients = attention(tex, layout, one, one, one, backward=True)[:3]
    assert [tuple(gradient.shape) for gradient in gradients] == [(128, 2, 4, 64)] * 3
    assert len({id(gradient.cell) for gradient in gradients}) == owners


def test_attention_that_is_the_same_each_time_holds_the_scores_gradient(tex: Any) -> None:
    one = on_gpu(128, 2, 4, 64)
    outputs = 4 * one.numel() * 2  # three gradients, and what stands for the output
    sums = 2 * 4 * 128 * 4
    for fixed, workspace in ((False, 2 * 4 * 128 * 64 * 4), (True, 2 * 4 * 128 * 128 * 2)):
        peak = peak_of(lambda fixed=fixed: attention(tex, "SBHD_SBHD_SBHD", one, one, one, backward=True, fixed=fixed))
        assert 0 <= peak - (outputs + sums + workspace) < 16 << 10


@pytest.mark.parametrize(
    ("heads", "mask", "fits"),
    [((64, 64), "CAUSAL", True), ((192, 128), "CAUSAL", True), ((20, 20), "CAUSAL", False), ((256, 64), "NO", True)],
)
def test_which_attention_cudnn_can_do(tex: Any, heads: tuple[int, int], mask: str, fits: bool) -> None:
    kind = tex.DType.kBFloat16
    backend = tex.get_fused_attn_backend(
        True, kind, kind, tex.NVTE_QKV_Layout.NVTE_SBHD_SBHD_SBHD, tex.NVTE_Bias_Type.NVTE_NO_BIAS,
        tex.NVTE_Mask_Type[f"NVTE_{mask}_MASK"], tex.NVTE_Softmax_Type.NVTE_VANILLA_SOFTMAX, 0.0, 8, 8, 128, 128,
        *heads, -1, 0, False, False, False,
    )  # fmt: skip
    wanted = "NVTE_F16_arbitrary_seqlen" if fits else "NVTE_No_Backend"
    assert backend == tex.NVTE_Fused_Attn_Backend[wanted]


def test_activations_rotary_embeddings_and_softmax(tex: Any) -> None:
    inputs = on_gpu(5, 32)
    assert tuple(tex.swiglu(inputs, None).shape) == (5, 16)
    assert tuple(tex.dswiglu(on_gpu(5, 16), inputs, None).shape) == (5, 32)
    assert tuple(tex.gelu(inputs, None).shape) == (5, 32)
    assert [tuple(one.shape) for one in tex.dbias_dgelu(inputs, inputs, None)] == [(32,), (5, 32)]
    heads, freqs = on_gpu(128, 2, 4, 64), on_gpu(128, 1, 1, 64, dtype=torch.float32)
    given = (None, tex.NVTE_QKV_Format.NVTE_SBHD, False, None, 1, 0)
    assert tuple(tex.fused_rope_forward(heads, freqs, *given).shape) == (128, 2, 4, 64)
    with pytest.raises(RuntimeError, match="longer sequence length"):
        tex.fused_rope_forward(on_gpu(256, 2, 4, 64), freqs, *given)
    scores = on_gpu(2, 4, 8, 8)
    gradient = on_gpu(2, 4, 8, 8)
    assert tuple(tex.scaled_softmax_forward(scores, 1.0).shape) == (2, 4, 8, 8)
    assert tex.scaled_softmax_backward(gradient, scores, 1.0) is gradient
    with pytest.raises(RuntimeError, match="Only fp16 and bf16"):
        tex.scaled_softmax_forward(scores.float(), 1.0)


def test_tokens_are_routed_and_permuted(tex: Any) -> None:
    logits = on_gpu(6, 8, dtype=torch.float32)
    chosen = tex.fused_topk_with_score_function_fwd(logits, 2, True, None, None, None, "softmax", None)
    assert [(tuple(one.shape), one.dtype) for one in chosen] == [
        ((6, 8), torch.float32), ((6, 8), torch.bool), ((6, 8), torch.float32),
    ]  # fmt: skip
    tokens, indices = on_gpu(6, 16), torch.zeros(6, 2, dtype=torch.int32, device="cuda")
    permuted, places, workspace = tex.moe_permute_fwd(tokens, tex.DType.kBFloat16, indices, 0, [], 12)
    assert (tuple(permuted.shape), tuple(places.shape), len(workspace)) == ((12, 16), (12,), 4)
    assert tex.moe_permute_fwd(tokens, tex.DType.kBFloat16, indices, 10, workspace, 12)[2] is workspace
    back = tex.moe_unpermute_fwd(permuted, tex.DType.kBFloat16, places, on_gpu(6, 2, dtype=torch.float32), 6, 2)
    assert tuple(back.shape) == (6, 16)


def test_optimizers_write_all_but_the_gradients(tex: Any, session: Session) -> None:
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    gradient, parameter, first, second = (torch.ones(4, device="cuda") for _ in range(4))
    tex.multi_tensor_adam(2048, flag, [[gradient], [parameter], [first], [second]], 1e-3, 0.9, 0.99, 1e-8, 1, 1, 1, 0.0)
    known = session.mode.known_values
    assert known(gradient) is not None
    assert known(parameter) is None
    assert known(second) is None
    norm, of_each = tex.multi_tensor_l2norm(2048, flag, [[gradient, parameter]], True)
    assert (tuple(norm.shape), tuple(of_each.shape)) == ((1,), (2,))
    with pytest.raises(RuntimeError, match="Size mismatch"):
        tex.multi_tensor_scale(2048, flag, [[gradient], [on_gpu(3)]], 1.0)


def test_a_rank_of_a_ring_has_the_chunks_from_both_ends(tex: Any) -> None:
    ends = torch.tensor([0, 8, 24], dtype=torch.int32, device="cuda")
    indices = tex.thd_get_partitioned_indices(ends, 24, 2, 0)
    assert indices.tolist() == [0, 1, 6, 7, 8, 9, 10, 11, 20, 21, 22, 23]
    assert tuple(tex.thd_read_half_tensor(on_gpu(2, 24, 4, 8), ends, 0).shape) == (2, 12, 4, 8)


@pytest.fixture(scope="module")
def recipes(tex: Any) -> Any:
    """The module with the quantizers of a scale for each tensor."""
    return importlib.import_module("transformer_engine.pytorch.tensor.float8_tensor")


def test_a_tensor_in_fp8_lies_by_rows_and_by_columns(tex: Any, recipes: Any) -> None:
    inputs = on_gpu(8, 4, 64)
    both = tex.quantize(inputs, recipes.Float8Quantizer())
    assert type(both) is recipes.Float8TensorStorage
    assert (both._data.shape, both._transpose.shape, both._data.dtype) == ((8, 4, 64), (64, 8, 4), torch.uint8)
    columns = tex.quantize(inputs, recipes.Float8Quantizer(rows=False))
    assert (columns._data, columns._transpose.shape, columns._scale_inv.shape) == (None, (64, 8, 4), (1,))
    assert tex.quantize(inputs, recipes.Float8Quantizer(columns=False), both) is both
    assert both._transpose is None
    assert tex.dequantize(both, tex.DType.kBFloat16).shape == (8, 4, 64)


def test_a_whole_tensor_in_fp8_can_leave_an_autograd_function(tex: Any, recipes: Any) -> None:
    quantizer = recipes.Float8CurrentScalingQuantizer()
    quantizer.internal = False

    class Quantize(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, inputs: torch.Tensor) -> Any:
            return tex.quantize(inputs, quantizer)

    made = Quantize.apply(on_gpu(8, 64).requires_grad_())  # type: ignore[no-untyped-call]
    assert (type(made), made.device.type, made.shape) == (recipes.Float8Tensor, "cuda", (8, 64))


def test_scales_of_blocks(tex: Any, recipes: Any) -> None:
    blocks = importlib.import_module("transformer_engine.pytorch.tensor.float8_blockwise_tensor")
    made = tex.quantize(on_gpu(300, 512), blocks.Float8BlockQuantizer())
    assert (made._rowwise_data.shape, made._columnwise_data.shape) == ((300, 512), (512, 300))
    assert (made._rowwise_scale_inv.shape, made._columnwise_scale_inv.shape) == ((4, 300), (3, 512))


def test_products_take_fp8_in_the_order_in_which_they_read_it(tex: Any, recipes: Any) -> None:
    weight = tex.quantize(on_gpu(32, 16), recipes.Float8Quantizer())
    inputs = tex.quantize(on_gpu(4, 2, 16), recipes.Float8Quantizer(columns=False))
    out, *_ = gemm(tex, weight, True, inputs, False)
    assert (out.shape, out.dtype) == ((4, 2, 32), torch.bfloat16)
    columns = tex.quantize(on_gpu(4, 2, 16), recipes.Float8Quantizer(rows=False))
    gradient = tex.quantize(on_gpu(4, 2, 32), recipes.Float8Quantizer(rows=False))
    of_weight, *_ = gemm(tex, columns, False, gradient, True, grad=True)
    assert of_weight.shape == (32, 16)
    with pytest.raises(RuntimeError, match="Input A is missing column-wise usage"):
        gemm(tex, inputs, False, tex.quantize(on_gpu(8, 32), recipes.Float8Quantizer()), True)


def test_kernels_that_do_not_write_fp8_have_a_plain_result_between(tex: Any, recipes: Any) -> None:
    inputs = on_gpu(1024, 4096)
    plain, in_fp8 = 1024 * 2048 * 2, 2 * 1024 * 2048
    assert peak_of(lambda: tex.swiglu(inputs, recipes.Float8Quantizer())) == in_fp8 + 512
    assert peak_of(lambda: tex.swiglu(inputs, recipes.Float8CurrentScalingQuantizer())) == plain + in_fp8 + 1024


def test_work_of_products_and_attention_is_told(session: Session) -> None:
    told: list[tuple[int, str]] = []

    def computed(flops: int, *tensors: torch.Tensor, kind: str = "", done: float = 1.0) -> None:
        told.append((flops, kind))

    module = make_module(lambda tensor: None, lambda what: None, (9, 0), computed)
    gemm(module, on_gpu(24, 16), True, on_gpu(5, 2, 16), False)
    assert told == [(2 * 24 * 16 * 10, "product")]


def test_what_is_not_covered_says_so(tex: Any) -> None:
    class NVFP4Quantizer:
        pass

    with pytest.raises(UnsupportedOperator, match="NVFP4Quantizer can't be rehearsed: gonogo's stand-in"):
        gemm(tex, on_gpu(24, 16), True, on_gpu(5, 16), False, quantizer=NVFP4Quantizer())
    with pytest.raises(UnsupportedOperator, match=r"transformer_engine_torch\.nvfp4_quantize_with_amax can't be"):
        tex.nvfp4_quantize_with_amax(on_gpu(24, 16), NVFP4Quantizer())
    with pytest.raises(UnsupportedOperator, match="CommOverlap"):
        tex.CommOverlap([1], torch.bfloat16, None, 2)


def test_the_package_of_its_python_alone_can_be_laid_over(tmp_path: Path) -> None:
    from gonogo.prepare.packages.names import PURE_PYTHON_REQUIREMENTS, can_overlay, needs_cuda

    assert can_overlay("transformer-engine")
    assert "onnxscript" in PURE_PYTHON_REQUIREMENTS["transformer-engine"]
    for compiled in ("transformer-engine-torch", "transformer-engine-cu12"):
        assert not can_overlay(compiled)
        assert needs_cuda(compiled)
