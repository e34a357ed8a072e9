"""A copy of an example with a model small enough to be trained for real on a CPU, weights and all."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from operators_in_python import without_compiling

EXAMPLES = Path(__file__).parents[2] / "examples"

QWEN2 = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "max_window_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
SMALLER: dict[str, dict[str, Any]] = {
    "qwen_72b_zero3_offload": QWEN2,
    "qwen_7b_device_map": QWEN2,
    "slam_omni_dummy_loss": QWEN2,
    "minicpmv_zero3_offload": {
        "text_config": {
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 4,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
        },
        "vision_config": {
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
        },
        "insert_layer_id": 1,
    },
    "qwen_omni_audio_zero3": {
        "thinker_config": {
            "text_config": {
                "hidden_size": 128,
                "intermediate_size": 128,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
                "rope_scaling": {"mrope_section": [8, 12, 12], "rope_type": "default", "type": "default"},
            },
            "audio_config": {
                "d_model": 64,
                "encoder_attention_heads": 2,
                "encoder_ffn_dim": 128,
                "encoder_layers": 2,
                "output_dim": 128,
            },
            "vision_config": {
                "depth": 2,
                "fullatt_block_indexes": [1],
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_heads": 2,
                "out_hidden_size": 128,
            },
        },
        "talker_config": {
            "embedding_size": 128,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 64,
            "rope_scaling": {"mrope_section": [8, 12, 12], "rope_type": "default", "type": "default"},
        },
        "token2wav_config": {
            "dit_config": {"hidden_size": 64, "dim": 64, "num_hidden_layers": 2, "num_attention_heads": 1},
            "bigvgan_config": {"upsample_initial_channel": 64},
        },
    },
}


def merged(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """``config`` with the changes put in, section by section."""
    result = dict(config)
    for key, value in changes.items():
        result[key] = merged(result[key], value) if isinstance(value, dict) and key in result else value
    return result


def shrunken(example: str, folder: Path) -> Path:
    """The example's copy below ``folder``, its model shrunken and given random weights."""
    import transformers

    copy = folder / example
    shutil.copytree(EXAMPLES / example, copy)
    path = copy / "model" / "config.json"
    path.write_text(json.dumps(merged(json.loads(path.read_text()), SMALLER[example])))
    config = transformers.AutoConfig.from_pretrained(copy / "model")
    if example == "qwen_omni_audio_zero3":
        model = transformers.Qwen2_5OmniForConditionalGeneration(config)
    elif example == "minicpmv_zero3_offload":
        model = transformers.MiniCPMV4_6ForConditionalGeneration(config)
    else:
        model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(copy / "model")
    return copy


def trained(
    copy: Path, *command: str, processes: int = 1, timeout: float = 280, compiled: bool = False
) -> subprocess.CompletedProcess[str]:
    """Runs ``command`` in the example's copy with real DeepSpeed, on the CPU and gloo.

    ``compiled``: with DeepSpeed's own operators, which take minutes to compile, rather than the same in Python.
    """
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    if not compiled:
        environment = without_compiling(environment)
    launcher = [sys.executable]
    if processes > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    else:
        environment |= alone()
    return subprocess.run(
        [*launcher, *command], cwd=copy, env=environment, capture_output=True, text=True, timeout=timeout
    )


def alone() -> dict[str, str]:
    """What torchrun tells the one process of a run, a free port included; spares its start."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {
        "RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0", "ROLE_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1",
        "GROUP_WORLD_SIZE": "1", "ROLE_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
