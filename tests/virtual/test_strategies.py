"""DeepSpeed's, transformers' and peft's strategies: each program runs to its end, and moves what it should.

Memory of ZeRO 1 to 3, of offload and of gradient checkpointing is compared with real runs in ``test_memory.py``.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from frameworks_installed import framework
from virtual.forked import output_of, rehearse_all
from virtual.strategies import TRAINER

from gonogo.evidence.rehearsal.record import RankRecord

OPTIMIZER = '{"type": "AdamW", "params": {"lr": 1e-4}}'
TWO_NODES = 'import os\nos.environ["WORLD_SIZE"] = "16"\n'

ULYSSES = """
import deepspeed
import torch
import torch.distributed as dist
import torch.nn.functional as F
from deepspeed.sequence.layer import DistributedAttention
from torch import nn
deepspeed.init_distributed()
class Local(nn.Module):
    def forward(self, q, k, v):
        assert q.shape == (1, 512, 2, 32), q.shape  # the whole sequence, an eighth of the heads
        return F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True).transpose(1, 2)
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.out = nn.Linear(512, 3 * 512), nn.Linear(512, 512)
        self.attention = DistributedAttention(Local(), dist.group.WORLD, scatter_idx=2, gather_idx=1)
    def forward(self, x):
        q, k, v = self.project(x).view(1, -1, 3, 16, 32).unbind(2)
        return self.out(self.attention(q, k, v, 0).reshape(1, -1, 512))
model = Block()
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
    "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}})
for _ in range(2):
    engine.backward(engine(torch.randn(1, 64, 512, device="cuda", dtype=torch.bfloat16)).float().square().mean())
    engine.step()
"""

ALST = """
import deepspeed
from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF
deepspeed.init_distributed()
mpu = UlyssesSPAttentionHF.register_with_transformers(
    model_name_or_path=folder(), core_attn_implementation="sdpa", sequence_parallel_size=2, micro_batch_size=1,
    seq_length=128, seq_length_is_variable=True)
model = AutoModelForCausalLM.from_pretrained("model", attn_implementation="sdpa")
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), mpu=mpu, config={
    "train_micro_batch_size_per_gpu": 1, "sequence_parallel_size": 2, "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}})
tokens = torch.arange(64, device="cuda")[None]
for _ in range(2):
    engine.backward(engine(input_ids=tokens, position_ids=tokens).logits.float().square().mean())
    engine.step()
"""

RAW = """
import deepspeed
deepspeed.init_distributed()
model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
config = {{"train_micro_batch_size_per_gpu": 2, "bf16": {{"enabled": True}},
           "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}}, {more}}}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
"""

PROGRAMS = {
    **{f"zero-{stage}": f"train(model(), zero({stage}))" for stage in (0, 2, 3)},
    "nvme": "train(model(config(vocab_size=65536)), zero(3, optimizer='nvme', parameters='nvme'))",
    "quantized-weights": "train(model(), zero(3, zero={'zero_quantized_weights': True}))",
    "zero++": TWO_NODES + "train(model(), zero(3, zero={'zero_quantized_weights': True, 'zero_hpz_partition_size': 8, "
    "'zero_quantized_gradients': True}))",
    "lora": "train(with_lora(model()), zero(2))",
    "dora": "train(with_lora(model(), use_dora=True), zero(3))",
    "frozen": "m = model()\nm.model.requires_grad_(False)\ntrain(m, zero(3))",
    "reentrant": "train(model(), zero(3), gradient_checkpointing=True, "
    "gradient_checkpointing_kwargs={'use_reentrant': True})",
    "non-reentrant": "train(with_lora(model()), zero(3), gradient_checkpointing=True, "
    "gradient_checkpointing_kwargs={'use_reentrant': False})",
    "accumulation": "train(model(), zero(2), gradient_accumulation_steps=4)",
    "fp16": "train(model(), zero(2), bf16=False, fp16=True)",
    "fp16-amp": "train(model(), bf16=False, fp16=True)",
    "fsdp": "train(model(), fsdp=True, fsdp_config={'transformer_layer_cls_to_wrap': ['Qwen2DecoderLayer']})",
    "flash-attention": "train(model(attn_implementation='flash_attention_2', dtype=torch.bfloat16), zero(2))",
    "compiled": "train(model(), torch_compile=True)",
    "ulysses": ULYSSES,
    "alst": ALST,
    "flex": "train(model(attn_implementation='flex_attention'))",
    "superoffload": RAW.format(
        more='"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "super_offload": True}}'
    ),
    "zenflow": RAW.format(
        more='"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, '
        '"zenflow": {"topk_ratio": 0.1, "update_interval": 4, "full_warm_up_rounds": 0, "overlap_step": False}}'
    ),
    "pipeline": "import deepspeed\ndeepspeed.init_distributed()\nfrom deepspeed.pipe import PipelineModule\n"
    "m = PipelineModule(layers=[nn.Linear(64, 64) for _ in range(8)], num_stages=2, loss_fn=nn.MSELoss())\n"
    "deepspeed.initialize(model=m, model_parameters=m.parameters(), config={'train_batch_size': 16, "
    "'train_micro_batch_size_per_gpu': 2, 'optimizer': {'type': 'AdamW', 'params': {'lr': 1e-4}}})",
}

REFUSED = {
    "superoffload": "DeepSpeed's SuperOffload",
    "zenflow": "DeepSpeed's ZenFlow",
    "pipeline": "DeepSpeed's PipelineModule",
}


def sent(record: RankRecord, *operators: str) -> int:
    """Bytes that the rank put into collectives of these kinds."""
    return sum(total.bytes for total in record.collectives if total.operator in operators)


@pytest.mark.very_slow
@pytest.mark.timeout(1800)
def test_strategies(tmp_path: Path) -> None:
    records = rehearse_all(tmp_path, {name: TRAINER + program for name, program in PROGRAMS.items()})
    for name, record in records.items():
        if name in REFUSED:
            assert record.outcome == "unsupported", f"{name}: {record.outcome} {output_of(tmp_path, name)}"
            assert [unsupported.what for unsupported in record.unsupported] == [REFUSED[name]]
        else:
            assert record.outcome == "completed", f"{name}: {output_of(tmp_path, name)}"
            assert record.steps == 2, name
    parameters = records["zero-3"].parameter_count
    assumed = {name: {entry.what for entry in record.assumptions} for name, record in records.items()}

    assert sent(records["zero-0"], "allreduce_") >= 2 * 2 * parameters
    gathered = {name: sent(records[name], "_allgather_base_") for name in ("zero-3", "quantized-weights")}
    assert 0.45 < gathered["quantized-weights"] / gathered["zero-3"] < 0.75, gathered  # 8 bits, and scales
    assert sent(records["zero++"], "alltoall_base_") > 0 == sent(records["zero-3"], "alltoall_base_")
    assert sent(records["ulysses"], "alltoall_base_") > 0 < sent(records["alst"], "alltoall_base_", "alltoall_")
    shared = records["alst"].as_run
    assert shared is not None
    assert (shared.strategy, shared.tokens, shared.sample_tokens) == (
        "DeepSpeed ZeRO-3 × Ulysses 2", (64, 64), (128, 128),
    )  # fmt: skip

    stored = {name: [event for event in records[name].events if event.startswith("NVMe: ")] for name in records}
    (event,) = stored["nvme"]
    nbytes = int(event.split()[1])
    offloaded = 18 * records["nvme"].parameter_count / 8  # masters, moments, gradients, and parameters but the smallest
    assert 0.95 * offloaded <= nbytes <= 1.1 * offloaded, (nbytes, offloaded)
    assert stored["zero-3"] == []

    reducing = ("allreduce_", "reduce_", "_reduce_scatter_base_")
    reduced = {name: sent(records[name], *reducing) for name in ("lora", "zero-2")}
    assert 0 < reduced["lora"] < 0.1 * reduced["zero-2"], reduced
    assert records["lora"].unused_parameters == []
    assert records["accumulation"].operators > 2 * records["zero-2"].operators
    assert any("finite" in what for what in assumed["fp16"]), assumed["fp16"]
    assert "flash-attn 2.8.3 is installed on the machine" in assumed["flash-attention"]
    assert "flash-attn 2.8.3 is installed on the machine" not in assumed["zero-2"]
    assert any(what.startswith("code under torch.compile compiles") for what in assumed["compiled"])
    assert sent(records["fsdp"], "_reduce_scatter_base_") > 0


@pytest.mark.very_slow
@pytest.mark.timeout(1800)
def test_liger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Liger's Triton kernels are left out, and spare the logits. Triton is large, and installed for this test alone."""
    monkeypatch.setenv("PYTHONPATH", str(framework("liger")), prepend=os.pathsep)
    big = "train(model(config(vocab_size=32768)), per_device_train_batch_size=16, use_liger_kernel={})"
    programs = {str(liger): TRAINER + big.format(liger) for liger in (True, False)}
    records = rehearse_all(tmp_path, programs)
    for name, record in records.items():
        assert (record.outcome, record.steps) == ("completed", 2), output_of(tmp_path, name)
    kernels = {entry.what.split()[2] for entry in records["True"].assumptions if entry.what.startswith("Triton")}
    assert {"_rms_norm_forward_kernel", "_swiglu_forward_kernel", "_triton_rope"} <= kernels, kernels
    logits = 16 * 64 * 32768 * 4
    with_logits, without = (sum(records[name].devices[0].by_category.values()) for name in ("False", "True"))
    assert with_logits - without > logits, (with_logits, without)
