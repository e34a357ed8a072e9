"""bitsandbytes: quantized layers, QLoRA and optimizers, as they are on a GPU but for the compiled library."""

from __future__ import annotations

from pathlib import Path

import pytest
from virtual.forked import output_of, real_peaks, rehearse_all
from virtual.strategies import TRAINER
from virtual.worlds import on_device

pytest.importorskip("bitsandbytes")

BYTES = """
import os
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":0:0"
import bitsandbytes as bnb
import torch

def taken(make):
    before = torch.cuda.memory_allocated()
    made = make()
    return torch.cuda.memory_allocated() - before, made

def blocks(*sizes):  # the caching allocator's
    return sum(-(-size // 512) * 512 for size in sizes)

bnb.nn.Params4bit(torch.empty(64, 64)).cuda()  # the map for nested statistics is kept on the device from now on
N = 1024 * 2048
for dtype in (torch.float16, torch.bfloat16, torch.float32):
    weight = torch.empty(2048, 1024, dtype=dtype)
    four, layer = taken(lambda: bnb.nn.Params4bit(weight, compress_statistics=False, quant_type="nf4").cuda())
    assert four == blocks(N // 2, 4 * N // 64, 4 * 16), four
    four, layer = taken(lambda: bnb.nn.Params4bit(weight, quant_type="nf4").cuda())
    nested = N // 64
    assert four == blocks(N // 2, nested, 4 * 16, 4 * nested // 256, 4 * 256, 4), four
    assert isinstance(layer, bnb.nn.Params4bit) and isinstance(layer, torch.nn.Parameter)
    assert (layer.shape, layer.dtype, layer.quant_state.shape) == ((N // 2, 1), torch.uint8, (2048, 1024))
    again, packed = taken(lambda: bnb.nn.Params4bit(weight, quant_type="nf4", quant_storage=torch.bfloat16).cuda())
    assert (again, packed.shape, packed.dtype) == (four, (N // 4, 1), torch.bfloat16)
half = torch.empty(2048, 1024, dtype=torch.float16)
eight, layer = taken(lambda: bnb.nn.Int8Params(half, requires_grad=False).cuda())
assert eight == blocks(N, 4 * 2048), eight

linear = bnb.nn.Linear4bit(1024, 2048, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4").cuda()
x = torch.randn(4, 256, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)
torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_allocated()
y = linear(x)
dequantized, output = 2 * N, 2 * 4 * 256 * 2048
assert torch.cuda.memory_allocated() - before == output
assert dequantized + output <= torch.cuda.max_memory_allocated() - before <= dequantized + output + 8 * N // 64
y.sum().backward()
assert x.grad.shape == x.shape and linear.weight.grad is None

wanted = {"Adam8bit": 1 + 1, "AdamW32bit": 4 + 4, "Lion8bit": 1, "PagedAdamW8bit": 0, "PagedAdamW32bit": 0}
for name, size in wanted.items():
    parameter = torch.nn.Parameter(torch.zeros(1 << 20, device="cuda"))
    optimizer = getattr(bnb.optim, name)([parameter])
    parameter.grad = torch.zeros_like(parameter)
    states, _ = taken(optimizer.step)
    scales = 2 * 4 * (1 << 20) // 256 + 2 * 4 * 256
    assert (size << 20) <= states <= (size << 20) + scales + 1024, (name, states)
try:
    bnb.functional.quantize_4bit(torch.empty(64, dtype=torch.int32, device="cuda"))
except ValueError as error:
    assert "16/32-bit floats" in str(error), error
else:
    raise SystemExit("integers were quantized")
"""

ADAPTED = """
import bitsandbytes as bnb
import torch
from torch import nn
where = "cuda" if torch.cuda.is_available() else "cpu"
class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = bnb.nn.Linear4bit(1024, 1024, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4")
        self.down, self.up = nn.Linear(1024, 64, bias=False), nn.Linear(64, 1024, bias=False)
    def forward(self, x):
        return self.base(x) + self.up(self.down(x))
model = nn.Sequential(*(Adapted() for _ in range(4))).to(where)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], foreach=False)
x = torch.randn(256, 1024, device=where)
for _ in range(2):
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

QLORA = """
quantization = BitsAndBytesConfig(**{quantization})
model = AutoModelForCausalLM.from_pretrained(folder(), quantization_config=quantization, dtype=torch.bfloat16,
                                             **({{"device_map": {{"": 0}}}} if {stage} < 3 else {{}}))
model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={{"use_reentrant": False}})
train(with_lora(model), zero({stage}) if {stage} else None)
"""
FOUR = '{"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}'
STORED = FOUR[:-1] + ', "bnb_4bit_quant_storage": torch.bfloat16, "bnb_4bit_compute_dtype": torch.bfloat16}'

PROGRAMS = {
    "bytes": BYTES,
    "adapted": ADAPTED,
    "qlora": TRAINER + QLORA.format(quantization=FOUR, stage=0),
    "qlora-3": TRAINER + QLORA.format(quantization=STORED, stage=3),
    "lora-8bit": TRAINER + QLORA.format(quantization='{"load_in_8bit": True}', stage=0),
    "paged": TRAINER + "train(model(config(vocab_size=32768)), optim='paged_adamw_32bit')",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quantized")


@pytest.mark.very_slow
@pytest.mark.timeout(1800)
def test_quantized_training(folder: Path) -> None:
    records = rehearse_all(folder, PROGRAMS)
    for name, record in records.items():
        assert record.outcome == "completed", output_of(folder, name)
        assert name == "bytes" or record.steps == 2, name
    real = real_peaks(folder, {"adapted": ADAPTED})["adapted"]
    assert abs(on_device(records["adapted"]) - real) <= 0.005 * real, (on_device(records["adapted"]), real)
    assumed = {name: {entry.what for entry in record.assumptions} for name, record in records.items()}
    for name in PROGRAMS:
        assert "bitsandbytes' compiled library loads on the machine" in assumed[name], name
    assert "bitsandbytes' paged states are in host memory" in assumed["paged"]
    host = records["paged"].host
    assert host is not None
    paged = 8 * 2 * 32768 * 128  # of tensors with 100,000 elements and more
    assert paged <= host.by_category["optimizer"] <= 1.01 * paged
