"""Ascend NPUs: programs that are rehearsed on a machine that has no GPU, and a torch without CUDA."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from gonogo.virtual.memory.allocator_settings import AllocatorSettings
from gonogo.virtual.memory.caching_allocator import CachingAllocator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_TRIED = """
import json
def tried(do):
    try:
        return str(do())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
def answer(**values):
    print("ANSWER " + json.dumps(values), flush=True)
"""
_REHEARSE = [sys.executable, "-m", "gonogo", "rehearse", "--format", "json", "--keep", "kept"]
_ZERO = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
}


def rehearse(folder: Path, program: str, *launch: str, gpus: str = "4xAscend910B4-32G") -> tuple[Any, dict[str, Any]]:
    """The report of a rehearsal of ``program``, and what the program gave to ``answer(...)``."""
    (folder / "train.py").write_text(_TRIED + textwrap.dedent(program))
    done = subprocess.run(
        [*_REHEARSE, "--gpus", gpus, "--", *(launch or ("python", "train.py"))],
        cwd=folder,
        env=os.environ | {"TORCH_NPU_DEVICE_CAPABILITY": "8.0"},  # dist.broadcast asks for it of what says is_cuda
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.stdout, done.stderr[-3000:]
    log = (folder / "kept" / "rank-0" / "output.log").read_text()
    found: dict[str, Any] = {}
    for line in log.splitlines():
        if line.startswith("ANSWER "):
            found.update(json.loads(line.removeprefix("ANSWER ")))
    return json.loads(done.stdout), found | {"log": log}


@pytest.mark.slow
def test_torch_npu_answers_as_on_a_machine_with_npus(tmp_path: Path) -> None:
    report, found = rehearse(
        tmp_path,
        """
        import importlib.metadata, os
        import torch
        import torch_npu
        from accelerate.utils import is_npu_available
        from deepspeed.accelerator import get_accelerator
        from transformers.utils import is_torch_npu_available

        properties = torch.npu.get_device_properties(3)
        answer(
            available=[torch.npu.is_available(), is_torch_npu_available(), is_npu_available()],
            without_cuda=[torch.cuda.is_available(), torch.cuda.device_count()],
            count=torch.npu.device_count(),
            properties=[properties.name, properties.total_memory >> 20],
            left=(torch.npu.mem_get_info()[0] >> 20),
            deepspeed=[type(get_accelerator()).__name__, get_accelerator().communication_backend_name()],
            versions=[torch_npu.__version__, importlib.metadata.version("torch-npu")],
            accelerator=str(torch.accelerator.current_accelerator()),
        )
        x = torch.ones(4, 8).npu()
        answer(
            devices=[
                str(t.device)
                for t in (x, x.to("npu:1"), torch.tensor([1.0], device="npu"), torch.nn.Linear(2, 2).npu().weight)
            ],
            kinds=[x.is_npu, x.is_cuda, x.cpu().is_npu, x.type()],
            values=(x + 1).sum().item(),
            allocated=torch.npu.memory_allocated(),
        )
        torch.npu.set_device("npu:2")
        with torch.npu.stream(torch.npu.Stream()), torch.autocast("npu", dtype=torch.bfloat16):
            y = x.to("npu:2") @ torch.ones(8, 2, device="npu")
        answer(autocast=[str(y.dtype), str(y.device)])
        answer(
            mixed=tried(lambda: x + torch.ones(4, 8)),
            cards=tried(lambda: x + x.to("npu:1")),
            cuda=[
                tried(do)
                for do in (
                    lambda: x.cuda(),
                    lambda: torch.ones(2).cuda(),
                    lambda: torch.empty(2, device="cuda"),
                    lambda: x.to("cuda:0"),
                    lambda: torch.cuda.current_device(),
                )
            ],
            ordinal=tried(lambda: torch.npu.set_device(4)),
            nothing=tried(lambda: torch_npu.no_such_name),
            no_stand_in=tried(lambda: torch_npu.npu_prompt_flash_attention(x)),
        )
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
        answer(nccl=tried(lambda: torch.distributed.init_process_group("nccl")))
        torch.distributed.init_process_group()
        answer(backend=torch.distributed.get_backend(), hccl=torch.distributed.is_hccl_available())

        q = torch.randn(2, 8, 64, 32, device="npu", dtype=torch.bfloat16, requires_grad=True)
        k = torch.randn(2, 2, 64, 32, device="npu", dtype=torch.bfloat16, requires_grad=True)
        out = torch_npu.npu_fusion_attention(q, k, k, 8, "BNSD", scale=0.1)
        out[0].sum().backward()
        rows = torch.nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)
        rms = torch_npu.npu_rms_norm(q, torch.ones(32, device="npu", dtype=torch.bfloat16))
        rotated = torch_npu.npu_rotary_mul(q, q, q)
        answer(
            attention=[list(t.shape) for t in out[:3]],
            gradients=[list(q.grad.shape), list(k.grad.shape)],
            sdpa=[list(rows.shape), type(rows.grad_fn).__name__],
            rms=[[list(t.shape), str(t.dtype)] for t in rms],
            rotary=list(rotated.shape),
            swiglu=list(torch.ops.npu.npu_swiglu(q).shape),
        )
        torch.save({"weight": x}, "weights.pt")
        answer(loaded=str(torch.load("weights.pt")["weight"].device))
        """,
    )
    assert report["verdict"] != "NO-GO", found["log"][-3000:]
    assert (found["available"], found["without_cuda"]) == ([True, True, True], [False, 0])
    assert found["count"] == 4
    assert found["properties"] == ["Ascend910B4", 30208]
    assert found["left"] == 30208 - 1824  # what CANN's context and HCCL's buffers take of it
    assert found["deepspeed"] == ["NPU_Accelerator", "hccl"]
    assert found["versions"][0] == found["versions"][1]
    assert found["accelerator"] == "npu"
    assert found["devices"] == ["npu:0", "npu:1", "npu:0", "npu:0"]
    assert found["kinds"] == [True, False, False, "torch.npu.FloatTensor"]
    assert found["values"] == 64.0
    assert found["allocated"] == 512
    assert found["autocast"] == ["torch.bfloat16", "npu:2"]
    same = "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, npu:0 and "
    assert (found["mixed"], found["cards"]) == (f"{same}cpu!", f"{same}npu:1!")
    assert set(found["cuda"]) == {"AssertionError: Torch not compiled with CUDA enabled"}
    assert "error code is 107001" in found["ordinal"]
    assert found["nothing"] == "AttributeError: module 'torch_npu' has no attribute 'no_such_name'"
    assert found["no_stand_in"].startswith("UnsupportedOperator: torch_npu.npu_prompt_flash_attention can't be")
    assert found["nccl"] == "RuntimeError: Distributed package doesn't have NCCL built in"
    assert (found["backend"], found["hccl"]) == ("undefined", True)
    assert found["attention"] == [[2, 8, 64, 32], [2, 8, 64, 8], [2, 8, 64, 8]]
    assert found["gradients"] == [[2, 8, 64, 32], [2, 2, 64, 32]]
    assert found["sdpa"][0] == [2, 8, 64, 32]
    assert "npu_fusion_attention" in found["sdpa"][1]  # not the math path, which keeps n × n scores
    assert found["rms"] == [[[2, 8, 64, 32], "torch.bfloat16"], [[2, 8, 64, 1], "torch.float32"]]
    assert found["rotary"] == [2, 8, 64, 32]
    assert found["swiglu"] == [2, 8, 64, 16]
    assert found["loaded"] == "npu:0"


@pytest.mark.very_slow
def test_a_trainer_with_zero_3_runs_on_npus(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        json.dumps(_ZERO | {"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}})
    )
    report, found = rehearse(
        tmp_path,
        """
        import torch
        from torch.utils.data import Dataset
        from transformers import Qwen2Config, Qwen2ForCausalLM, Trainer, TrainingArguments

        class Rows(Dataset):
            def __len__(self):
                return 64
            def __getitem__(self, index):
                ids = torch.arange(index, index + 32)
                return {"input_ids": ids, "labels": ids}

        arguments = TrainingArguments("out", per_device_train_batch_size=2, bf16=True, deepspeed="ds.json",
                                      learning_rate=1e-4, max_grad_norm=1.0, report_to=[], max_steps=4, save_steps=4)
        model = Qwen2ForCausalLM(Qwen2Config(vocab_size=512, hidden_size=64, intermediate_size=128,
                                             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2))
        trainer = Trainer(model=model, args=arguments, train_dataset=Rows())
        answer(device=str(arguments.device), place=str(trainer.accelerator.device))
        trainer.train()
        answer(backend=torch.distributed.get_backend())
        """,
        *("deepspeed", "--num_gpus", "4", "train.py"),
    )
    assert (report["verdict"], report["findings"]) == ("GO", []), found["log"][-3000:]
    assert (found["device"], found["place"]) == ("npu:0", "npu:0")
    assert report["rehearsal"]["accelerator"] == "Ascend-910B4"
    (rank,) = report["rehearsal"]["ranks"]
    assert rank["device"] == "npu:0"


@pytest.mark.slow
def test_a_program_for_cuda_is_transferred_and_its_mixed_devices_are_found(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(_ZERO | {"zero_optimization": {"stage": 2}}))
    report, found = rehearse(
        tmp_path,
        """
        import torch
        import torch_npu
        from torch_npu.contrib import transfer_to_npu
        import deepspeed

        deepspeed.init_distributed("nccl")
        torch.cuda.set_device(0)
        model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16)).cuda()
        engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds.json")
        answer(backend=torch.distributed.get_backend(), memory=torch.cuda.memory_allocated() > 0)
        for step in range(2):
            x = torch.randn(2, 16, device="cuda", dtype=torch.bfloat16)
            loss = engine(x).square().mean()
            engine.backward(loss)
            engine.step()
        answer(device=str(loss.device), is_cuda=loss.is_cuda)
        scale = torch.ones(16)
        (engine(x) * scale).sum()
        """,
        *("deepspeed", "--num_gpus", "4", "train.py"),
    )
    assert (found.get("backend"), found.get("memory")) == ("hccl", True), found["log"][-3000:]
    assert (found["device"], found["is_cuda"]) == ("npu:0", True)
    error = report["findings"][0]
    assert (report["verdict"], error["certainty"]) == ("NO-GO", "certain")
    assert error["hazard"].startswith("device-mismatch")
    assert "npu:0" in error["cause"]
    assert "(engine(x) * scale).sum()" in error["spans"][0]["text"]


def test_the_allocator_pads_as_torch_npus_does() -> None:
    allocator = CachingAllocator(1 << 30, AllocatorSettings.from_environment({}, "npu"))
    allocator.malloc(480)
    assert allocator.allocated == 512
    allocator.malloc(481)
    assert allocator.allocated == 512 + 1024
    settings = AllocatorSettings.from_environment(
        {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True,page_size:1g", "PYTORCH_CUDA_ALLOC_CONF": "nonsense"},
        "npu",
    )
    assert settings.expandable_segments
    with pytest.raises(ValueError, match="Unrecognized CachingAllocator option: nonsense"):
        AllocatorSettings.parse("nonsense:1", "npu")
