"""The folders of the examples: complete, at true size, without weights, and cured by the cure alone."""

from __future__ import annotations

import difflib
import json
import runpy
import shutil
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCENARIOS = {
    "qwen_omni_audio_zero3": 10.73e9,
    "minicpmv_zero3_offload": 1.30e9,
    "qwen_72b_zero3_offload": 72.71e9,
    "qwen_7b_device_map": 7.72e9,
    "slam_omni_dummy_loss": 7.62e9,
    "grpo_7b_colocated_weight_sync": 7.62e9,
}
CURES = {
    "qwen_7b_device_map/finetune.py": ['-        device_map="auto",'],
    "slam_omni_dummy_loss/train.py": [
        "-            # Batches of text only leave the adapter out of the loss, and DDP hung waiting for its "
        "gradients.",
        "-            loss = loss + sum(p.sum() for p in model.group_decode_adapter.parameters()) * 0.0",
    ],
    "qwen_72b_zero3_offload/requirements.txt": ["-deepspeed==0.14.2", "+deepspeed==0.14.4"],
    "minicpmv_zero3_offload/requirements.txt": ["-deepspeed==0.14.2", "+deepspeed==0.14.4"],
    "grpo_7b_colocated_weight_sync/launch.sh": ["+  --vllm_enable_sleep_mode true"],
    "qwen_omni_audio_zero3/launch.sh": ["+export ENABLE_AUDIO_OUTPUT=0"],
}


@pytest.mark.parametrize("example", SCENARIOS)
def test_a_folder_has_what_its_user_needs_and_no_weights(example: str) -> None:
    folder = EXAMPLES / example
    names = {path.name for path in folder.iterdir()}
    assert {"launch.sh", "ds_config.json", "README.md", "model", "data"} <= names
    assert "launch_fixed.sh" in names or {"requirements.txt", "requirements_fixed.txt"} <= names
    assert json.loads((folder / "ds_config.json").read_text())["zero_optimization"]["stage"] in (2, 3)
    assert not [path for path in folder.rglob("*") if path.suffix in (".safetensors", ".bin")]
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 100_000
    assert not [path for path in folder.rglob("*") if path.is_file() and b"gonogo" in path.read_bytes().lower()]


@pytest.mark.parametrize("example", SCENARIOS)
def test_the_model_has_its_true_size(example: str) -> None:
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(EXAMPLES / example / "model")
    model_class = {
        "qwen2": transformers.Qwen2ForCausalLM,
        "minicpmv4_6": transformers.MiniCPMV4_6ForConditionalGeneration,
        "qwen2_5_omni": transformers.Qwen2_5OmniForConditionalGeneration,
    }[config.model_type]
    with torch.device("meta"):
        model = model_class(config)
    model.tie_weights()
    assert sum(parameter.numel() for parameter in model.parameters()) == pytest.approx(SCENARIOS[example], rel=1e-3)


@pytest.mark.parametrize("broken", CURES)
def test_the_fixed_half_differs_by_the_cure_alone(broken: str) -> None:
    path = EXAMPLES / broken
    fixed = path.with_name(f"{path.stem}_fixed{path.suffix}")
    diff = difflib.unified_diff(path.read_text().splitlines(), fixed.read_text().splitlines(), n=0, lineterm="")
    changes = [line for line in list(diff)[2:] if not line.startswith("@@")]
    comments = ("-# ", "+# ")  # a launch script's own remark
    assert [line for line in changes if not line.startswith(comments) and line not in ("+", "-")] == CURES[broken]


def test_the_model_files_are_what_their_maker_makes(tmp_path: Path) -> None:
    for example in SCENARIOS:
        (tmp_path / example).mkdir()
    shutil.copy(EXAMPLES / "make_model_files.py", tmp_path)
    runpy.run_path(str(tmp_path / "make_model_files.py"), run_name="__main__")
    made = [path for path in tmp_path.rglob("*.json") if path.is_file()]
    assert len(made) == 2 * len(SCENARIOS)
    for path in made:
        assert path.read_bytes() == (EXAMPLES / path.relative_to(tmp_path)).read_bytes(), path.name
