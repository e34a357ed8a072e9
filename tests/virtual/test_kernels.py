from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from gonogo.finding import Text
from gonogo.virtual.kernels import _MissingKernel, nvrtc
from gonogo.virtual.kernels.async_io import AsyncIo, NvmeTraffic
from gonogo.virtual.kernels.cpu_optimizers import CpuAdagrad, CpuAdam, CpuLion
from gonogo.virtual.kernels.fused_optimizers import FusedAdam, FusedLamb, FusedLion
from gonogo.virtual.kernels.host import Utils
from gonogo.virtual.kernels.quantizer import FpQuantizer, Quantizer
from gonogo.virtual.kernels.random_ltd import RandomLtd


class Written(list[Any]):
    def __call__(self, tensor: torch.Tensor) -> None:
        self.append(tensor)

    def is_exactly(self, *tensors: torch.Tensor) -> bool:
        return len(self) == len(tensors) and all(a is b for a, b in zip(self, tensors, strict=True))


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.fixture
def cuda() -> Iterator[torch.device]:
    """Within it, tensors on CUDA devices can be made and have no memory."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield torch.device("cuda:0")


def floats(*shape: int, dtype: torch.dtype = torch.float32, device: Any = "cpu") -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=device)


ADAM = (1, 1e-3, 0.9, 0.999, 1e-8, 0.0, True)


@pytest.mark.parametrize(
    ("parameter", "state"),
    [
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.bfloat16, torch.bfloat16),
        (torch.float16, torch.float16),
    ],
)
def test_cpu_adam_writes_parameters_and_states(written: Written, parameter: torch.dtype, state: torch.dtype) -> None:
    adam = CpuAdam(written)
    assert adam.create_adam(0, 1e-3, 0.9, 0.999, 1e-8, 0.0, True, False) == 0
    params, grads = floats(4, dtype=parameter), floats(4, dtype=parameter)
    first, second = floats(4, dtype=state), floats(4, dtype=state)
    assert adam.adam_update(0, *ADAM, params, grads, first, second) == 0
    assert written.is_exactly(params, first, second)
    adam.destroy_adam(0)
    with pytest.raises(RuntimeError, match="was not created"):
        adam.adam_update(0, *ADAM, params, grads, first, second)


def test_cpu_adam_refuses_dtypes_it_has_no_code_for(written: Written) -> None:
    adam = CpuAdam(written)
    adam.create_adam(0)
    params, state = floats(4, dtype=torch.float64), floats(4)
    with pytest.raises(RuntimeError, match="Adam optimizer with param type Double and state type Float is not supp"):
        adam.adam_update(0, *ADAM, params, params, state, state)
    assert not written


def test_cpu_adam_would_crash_on_device_tensors(written: Written, cuda: torch.device) -> None:
    adam = CpuAdam(written)
    adam.create_adam(0)
    host, device = floats(4), floats(4, device=cuda)
    with pytest.raises(RuntimeError, match="grads is on cuda:0, but this kernel reads host memory"):
        adam.adam_update(0, *ADAM, host, device, host, host)


def test_cpu_adam_of_old_copies_to_the_device(written: Written, cuda: torch.device) -> None:
    adam = CpuAdam(written)
    adam.create_adam(0)
    host = floats(4)
    device = floats(4, dtype=torch.float16, device=cuda)
    adam.adam_update_copy(0, *ADAM, host, floats(4), floats(4), floats(4), device)
    assert written[-1] is device
    with pytest.raises(RuntimeError, match="device_params is on cpu"):
        adam.adam_update_copy(0, *ADAM, host, host, host, host, host)


def test_cpu_adam_updates_a_copy_of_what_is_not_contiguous(written: Written) -> None:
    adam = CpuAdam(written)
    adam.create_adam(0)
    params, state = floats(4, 4).t(), floats(4, 4)
    adam.adam_update(0, *ADAM, params, state, state, state)
    assert written.is_exactly(state, state)


def test_cpu_rollback_is_for_float32(written: Written) -> None:
    adam = CpuAdam(written)
    adam.create_adam(0)
    assert adam.adam_rollback(0, *ADAM, *[floats(2, dtype=torch.bfloat16)] * 4) == -1
    assert adam.adam_rollback(0, *ADAM, *[floats(2)] * 4) == 0


def test_cpu_adagrad_and_lion(written: Written) -> None:
    params, state = floats(4), floats(4)
    adagrad = CpuAdagrad(written)
    adagrad.create_adagrad(3)
    adagrad.adagrad_update(3, 1, 1e-3, 1e-8, 0.0, params, floats(4), state)
    lion = CpuLion(written)
    lion.create_lion(4)
    lion.lion_update(4, 1, 1e-3, 0.9, 0.99, 0.0, params, floats(4), state)
    assert written.is_exactly(params, state, params, state)


FUSED = (1e-3, 0.9, 0.999, 1e-8, 1, 1, 1, 0.0)


def test_fused_adam(written: Written, cuda: torch.device) -> None:
    lists = [[floats(4, device=cuda), floats(8, device=cuda)] for _ in range(4)]
    flag = torch.zeros(1, dtype=torch.int32, device=cuda)
    FusedAdam(written).multi_tensor_adam(65536, flag, lists, *FUSED)
    assert written.is_exactly(*lists[1], *lists[2], *lists[3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lists, cuda: lists.pop(), "tensor_lists.size\\(\\) != depth"),
        (lambda lists, cuda: lists[2].pop(), "Size mismatch among tensor lists"),
        (lambda lists, cuda: lists[0].__setitem__(0, floats(4)), "expected input to be on cuda"),
        (lambda lists, cuda: lists[1].__setitem__(0, floats(4)), "not on the same device as the first tensor"),
        (lambda lists, cuda: lists[1].__setitem__(0, floats(5, device=cuda)), "Size mismatch"),
        (lambda lists, cuda: lists[3].__setitem__(0, torch.empty_strided((4,), (2,), device=cuda)), "not contiguous"),
        (
            lambda lists, cuda: lists[0].__setitem__(0, torch.zeros(4, dtype=torch.int64, device=cuda)),
            "not implemented",
        ),
        (lambda lists, cuda: [tensors.clear() for tensors in lists], "is not > 0"),
    ],
)
def test_fused_adam_refuses(written: Written, cuda: torch.device, change: Any, message: str) -> None:
    lists = [[floats(4, device=cuda), floats(8, device=cuda)] for _ in range(4)]
    change(lists, cuda)
    with pytest.raises(RuntimeError, match=message):
        FusedAdam(written).multi_tensor_adam(65536, torch.zeros(1, dtype=torch.int32, device=cuda), lists, *FUSED)
    assert not written


def test_fused_lion(written: Written, cuda: torch.device) -> None:
    lists = [[floats(4, device=cuda)] for _ in range(3)]
    flag = torch.zeros(1, dtype=torch.int32, device=cuda)
    FusedLion(written).multi_tensor_lion(65536, flag, lists, 1e-3, 0.9, 0.99, 1, 0.0)
    assert written.is_exactly(lists[1][0], lists[2][0])
    with pytest.raises(RuntimeError, match="expected scalar type Int but found Float"):
        FusedLion(written).multi_tensor_lion(65536, floats(1, device=cuda), lists, 1e-3, 0.9, 0.99, 1, 0.0)


def test_fused_lamb(written: Written, cuda: torch.device) -> None:
    numbers = (1e-3, 0.9, 0.999, 10.0, 0.01, 1e-8, 1.0, 1, 1, 1, 0.0)
    p, m, v, g = (floats(4, device=cuda) for _ in range(4))
    empty = floats(0, device=cuda)
    coefficient = FusedLamb(written).lamb(p, empty, m, v, g, *numbers)
    assert (coefficient.shape, coefficient.device) == ((1,), cuda)
    assert written.is_exactly(p, m, v)
    with pytest.raises(RuntimeError, match="g must be a CUDA tensor"):
        FusedLamb(written).lamb(p, empty, m, v, floats(4), *numbers)
    with pytest.raises(RuntimeError, match="number of elements in m and p"):
        FusedLamb(written).lamb(p, empty, floats(5, device=cuda), v, g, *numbers)


def test_quantizer(written: Written, cuda: torch.device) -> None:
    quantizer = Quantizer(written)
    values = floats(16, 64, dtype=torch.float16, device=cuda)
    eight, scales = quantizer.quantize(values, 16, 8, quantizer.Symmetric)
    assert (eight.shape, eight.dtype, scales.shape) == ((16, 64), torch.int8, (16, 1))
    four, scales = quantizer.quantize(values, 16, 4, quantizer.Asymmetric)
    assert (four.shape, scales.shape) == ((16, 32), (16, 2))
    assert quantizer.dequantize(four, scales, 16, 4, quantizer.Asymmetric).shape == (16, 64)
    assert quantizer.dequantize_fp32(eight, scales, 16, 8, quantizer.Symmetric).dtype == torch.float32
    swizzled, _ = quantizer.swizzle_quant(values, 16, 4, quantizer.Symmetric, 1, 2, 8)
    assert swizzled.shape == (512,)
    reduced, scales = quantizer.quantized_reduction(swizzled, scales, 16, 2, 4, quantizer.Symmetric, 8)
    assert (reduced.shape, scales.shape) == ((64,), (2, 1))
    assert quantizer.ds_sr_quantize_asym_fp16(values, 16, 8) is values
    assert written.is_exactly(values)
    with pytest.raises(RuntimeError, match="input_vals is on cpu"):
        quantizer.quantize(floats(4, 4), 4, 8, quantizer.Symmetric)
    with pytest.raises(AttributeError):
        quantizer.no_such_function  # noqa: B018


def test_fp_quantizer(written: Written, cuda: torch.device) -> None:
    out, values = torch.empty(64, dtype=torch.uint8, device=cuda), floats(64, dtype=torch.bfloat16, device=cuda)
    quantizer = FpQuantizer(written)
    assert quantizer.quantize(out, values, 64, 0, 8, 3) is out
    quantizer.dequantize(values, out, 64, 3, 4)
    assert written.is_exactly(out, values)
    assert quantizer.get_scales(out, 1).shape == (1, 1)


def test_random_ltd(written: Written, cuda: torch.device) -> None:
    ltd = RandomLtd(written)
    indices = torch.empty((2, 5), dtype=torch.int32, device=cuda)
    activations = floats(2, 16, 8, device=cuda)
    assert ltd.token_gather(activations, indices, True).shape == (2, 5, 8)
    assert ltd.token_gather(activations, indices, False).shape == (5, 2, 8)
    assert ltd.token_scatter_(activations, floats(2, 5, 8, device=cuda), indices, True) is activations
    assert ltd.mask_gather_gpt(floats(2, 1, 16, 16, device=cuda), 5).shape == (2, 1, 5, 5)


def test_async_io_counts_bytes(written: Written) -> None:
    traffic = NvmeTraffic()
    handle = AsyncIo(written, traffic).aio_handle(1 << 20, 8, False, True, 4)
    buffer = floats(1024)
    assert handle.async_pwrite(buffer, "/nvme/a.tensor", 0) == 0
    assert handle.async_pwrite(buffer, "/nvme/b.tensor", 4096) == 0
    assert handle.wait() == 2
    assert handle.wait() == 0
    assert (traffic.written_bytes, traffic.stored_bytes) == (8192, 4096 + 8192)
    assert handle.sync_pread(buffer, "/nvme/a.tensor") == 1
    assert written.is_exactly(buffer)
    assert handle.pread(floats(2048), "/nvme/a.tensor", False, True, 0) == -1  # more than the file holds
    assert handle.async_pread(buffer, "/nvme/no-such-file") == -1
    assert handle.async_pwrite(floats(1, dtype=torch.float16), "/nvme/c.tensor") == -1  # 2 bytes for 4 threads
    assert handle.get_alignment() == 2048


def test_utils() -> None:
    utils = Utils()
    tensors = [torch.ones(2, 3), torch.zeros(4)]
    flat = utils.flatten(tensors)
    assert flat.tolist() == [1.0] * 6 + [0.0] * 4
    assert [t.shape for t in utils.unflatten(flat, tensors)] == [(2, 3), (4,)]
    assert utils.cast_to_byte_tensor(torch.ones(3)).shape == (12,)
    assert [t.dtype for t in utils.cast_to_byte_tensor([torch.ones(2), torch.ones(2)])] == [torch.uint8] * 2


DEEPSPEED = """
import torch
from gonogo.evidence.environment.hardware import find_accelerator
from gonogo.virtual import kernels
from gonogo.virtual.cuda import facade as cuda
from gonogo.virtual.memory.caching_allocator import CachingAllocator

facade = cuda.install(find_accelerator("H100"), 2, lambda index: CachingAllocator(1 << 30))
assumed = []
installed = kernels.install(lambda tensor: None, lambda what, why: LookupError(what), assumed.append)
import deepspeed
from deepspeed.accelerator import get_accelerator
from deepspeed.ops.adam import DeepSpeedCPUAdam

accelerator = get_accelerator()
assert accelerator.device_name(1) == "cuda:1" and accelerator.communication_backend_name() == "nccl"
for name in ("CPUAdamBuilder", "AsyncIOBuilder", "QuantizerBuilder", "FusedAdamBuilder", "TransformerBuilder"):
    assert accelerator.create_op_builder(name).is_compatible(), name
parameter = torch.nn.Parameter(torch.ones(4))
optimizer = DeepSpeedCPUAdam([parameter])
parameter.grad = torch.ones(4)
optimizer.step()
assert installed.loaded == ["cpu_adam"] and len(assumed) == 1, (installed.loaded, assumed)
assert accelerator.create_op_builder("AsyncIOBuilder").load().aio_handle().wait() == 0
module = accelerator.create_op_builder("TransformerBuilder").load()
try:
    module.forward_fp16(1)
except LookupError as error:
    assert "deepspeed.transformer.forward_fp16" in str(error)
else:
    raise SystemExit("a kernel without a stand-in ran")
from deepspeed.ops.op_builder.builder import installed_cuda_version, OpBuilder
assert ".".join(map(str, installed_cuda_version())) == torch.version.cuda
from torch.utils import cpp_extension
try:
    cpp_extension.load("mine", [])
except LookupError as error:
    assert "'mine'" in str(error)
else:
    raise SystemExit("an extension was compiled")
installed.undo()
assert OpBuilder.load.__module__ == "deepspeed.ops.op_builder.builder"
"""


@pytest.mark.slow
def test_deepspeed_loads_stand_ins() -> None:
    pytest.importorskip("deepspeed")
    result = subprocess.run([sys.executable, "-c", DEEPSPEED], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]


TRITON = """
import torch
from gonogo.virtual.kernels import triton as stand_in
from gonogo.virtual.patching.patches import Patches

written, assumed = [], []
patches = Patches()
stand_in.install(patches, written.append, assumed.append, (9, 0))
from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction


def scale(x_ptr, y_ptr, index_ptr, count_ptr, n, BLOCK):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + offsets)
    block = y_ptr + index
    tl.store(block, tl.load(x_ptr + offsets) * 2, mask=offsets < n)
    tl.atomic_add(count_ptr, 1)
    raise SystemExit("a Triton kernel ran")


def calls_another(x_ptr, y_ptr, n):
    helper(y_ptr, n)


assert stand_in.written_parameters(scale) == {"y_ptr", "count_ptr"}, stand_in.written_parameters(scale)
assert stand_in.written_parameters(calls_another) == {"y_ptr", "n"}
x, y, index, count = (torch.empty(8, device="meta") for _ in range(4))
stand_in.on_accelerator = lambda tensor: tensor.device.type == "meta"
kernel = JITFunction(scale)
assert kernel.run(x, y, index, count, 8, BLOCK=8, grid=(1,), warmup=False) is None
assert [id(t) for t in written] == [id(y), id(count)]
assert [what.en for what in assumed] == ["Triton kernel scale compiles and runs on the machine"], assumed
Autotuner(kernel, [Config({"BLOCK": 16})]).run(x, y, index, count, 8, grid=(1,), warmup=False)
assert len(written) == 4
assert driver.active.get_current_target().arch == 90
try:
    kernel.run(x, torch.empty(8), index, count, 8, BLOCK=8, grid=(1,), warmup=False)
except ValueError as error:
    assert str(error) == "Pointer argument (at 1) cannot be accessed from Triton (cpu tensor?)", error
else:
    raise SystemExit("a tensor of the CPU was taken")
"""


def test_a_kernel_of_nvrtc_writes_what_is_not_const() -> None:
    source = """
    extern "C" __global__  // void add(const float* a)
    void add(const float* __restrict__ a, float const* b, __nv_bfloat16* c, int n) { }
    """
    assert nvrtc.written_positions(source, "add") == {2}
    assert nvrtc.written_positions(source, "other") is None


PACKAGE = {
    "__init__.py": "",
    "runtime/__init__.py": "",
    "runtime/jit.py": """
class JITFunction:
    def __init__(self, fn):
        self.fn = fn
    def run(self, *args, grid, warmup, **kwargs):
        return self.fn()
""",
    "runtime/autotuner.py": """
class Config:
    def __init__(self, kwargs):
        self.kwargs = kwargs
    def all_kwargs(self):
        return {**self.kwargs, "num_warps": 4}
class Autotuner:
    def __init__(self, fn, configs):
        self.fn, self.configs = fn, configs
""",
    "runtime/driver.py": """
class DriverConfig:
    def __init__(self):
        self._active = None
    @property
    def active(self):
        return self._active
driver = DriverConfig()
""",
}


def test_a_triton_kernel_is_left_out(tmp_path: Path) -> None:
    for name, text in PACKAGE.items():
        path = tmp_path / "triton" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    program = tmp_path / "program.py"
    program.write_text(TRITON)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, str(program)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr[-3000:]


def test_a_kernel_without_a_stand_in_says_what_to_turn_off() -> None:
    said: list[Text] = []

    def unsupported(what: str, why: Text) -> BaseException:
        said.append(why)
        return NotImplementedError(what)

    with pytest.raises(NotImplementedError, match=r"transformer_inference\.softmax_context_fp16"):
        _MissingKernel("transformer_inference", unsupported).softmax_context_fp16(None)
    assert "hybrid_engine" in said[0].en
    assert "hybrid_engine" in said[0].zh
