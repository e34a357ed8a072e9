"""Which ranks read the weights under FSDP is read off the release of transformers, and true of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gonogo.virtual.fsdp_loading import first_rank_alone_reads

PROGRAM = """
import os, sys
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
model = LlamaForCausalLM.from_pretrained(sys.argv[1])
parameters = list(model.parameters())
print("meta" if any(p.is_meta for p in parameters) else float(sum(p.abs().sum() for p in parameters)) > 0)
"""


def test_this_release_reads_where_it_is_said_to(tmp_path: Path) -> None:
    """Two real processes, without gonogo."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=64
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    (tmp_path / "train.py").write_text(PROGRAM)
    wanted = {"ACCELERATE_USE_FSDP": "true", "FSDP_CPU_RAM_EFFICIENT_LOADING": "true"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "train.py", "model", str(tmp_path / "store")], cwd=tmp_path, text=True,
            stdout=subprocess.PIPE, env={**os.environ, **wanted, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in (0, 1)
    ]  # fmt: skip
    first, second = (rank.communicate(timeout=300)[0].split()[-1] for rank in ranks)
    assert first == "True"
    assert (second != "True") is first_rank_alone_reads(transformers.modeling_utils)


def test_a_release_that_asks_for_the_rank_while_it_reads() -> None:
    def is_local_dist_rank_0() -> bool:
        return True

    def load_state_dict() -> str:
        return "cpu" if is_local_dist_rank_0() else "meta"

    module: Any = SimpleNamespace(load_state_dict=load_state_dict, PreTrainedModel=object)
    module.load_state_dict.__code__ = load_state_dict.__code__.replace(
        co_names=(*load_state_dict.__code__.co_names, "is_local_dist_rank_0")
    )
    assert first_rank_alone_reads(module)
    module.load_state_dict = lambda: "cpu"
    assert not first_rank_alone_reads(module)
