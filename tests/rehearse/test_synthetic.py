"""Rehearsals without a script and data: batches that real models take, and the whole way from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gonogo.finding import UserError
from gonogo.rehearse.synthetic import SyntheticOptions

TEXT: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
}
QWEN2 = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **TEXT}
LLAVA = {
    "model_type": "llava",
    "architectures": ["LlavaForConditionalGeneration"],
    "image_token_index": 999,
    "text_config": {"model_type": "llama", **TEXT},
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 56,
        "patch_size": 14,
    },
}
QWEN2_VL = {
    "model_type": "qwen2_5_vl",
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "image_token_id": 990,
    "video_token_id": 991,
    "vision_start_token_id": 992,
    "vision_end_token_id": 993,
    "text_config": {
        "model_type": "qwen2_5_vl_text",
        **TEXT,
        "rope_scaling": {"type": "mrope", "rope_type": "default", "mrope_section": [2, 3, 3]},
    },
    "vision_config": {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": 64,
        "fullatt_block_indexes": [1],
    },
}
WHISPER = {
    "model_type": "whisper",
    "architectures": ["WhisperForConditionalGeneration"],
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "vocab_size": 1000,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 3,
    "max_target_positions": 64,
    "suppress_tokens": [],
    "begin_suppress_tokens": [],
}
VIT = {
    "model_type": "vit",
    "architectures": ["ViTForImageClassification"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 16,
}
WAV2VEC2_BERT = {
    "model_type": "wav2vec2-bert",
    "architectures": ["Wav2Vec2BertForSequenceClassification"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "classifier_proj_size": 16,
}
_DIA_PART = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "head_dim": 16,
}
DIA = {
    "model_type": "dia",
    "architectures": ["DiaForConditionalGeneration"],
    "encoder_config": {**_DIA_PART, "num_key_value_heads": 2},
    "decoder_config": {
        **_DIA_PART,
        "num_key_value_heads": 2,
        "cross_num_attention_heads": 2,
        "cross_num_key_value_heads": 2,
        "cross_head_dim": 16,
        "cross_hidden_size": 32,
    },
}
ZERO3 = {
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
    "gradient_clipping": "auto",
    "gradient_accumulation_steps": "auto",
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
}


def written(folder: Path, name: str, what: Any) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(what if isinstance(what, str) else json.dumps(what))
    return path


def rehearsed(folder: Path, config: dict[str, Any], *options: str) -> dict[str, Any]:
    model = written(folder / "model", "config.json", config).parent
    deepspeed = written(folder, "ds.json", ZERO3)
    done = subprocess.run(
        [sys.executable, "-m", "gonogo", "rehearse", "--synthetic-batch", str(model), "--deepspeed", str(deepspeed),
         "--gpus", "8xH100-80G", "--steps", "1", "--seq-len", "64", "--format", "json", "--lang", "en", *options],
        capture_output=True, text=True, check=False, cwd=folder, timeout=600,
    )  # fmt: skip
    assert done.stdout, done.stderr[-3000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [QWEN2, *(pytest.param(config, marks=pytest.mark.very_slow) for config in (LLAVA, WHISPER))],
    ids=lambda config: str(config["model_type"]),
)
def test_a_model_is_rehearsed_from_its_config_alone(tmp_path: Path, config: dict[str, Any]) -> None:
    report = rehearsed(tmp_path, config)
    assert report["verdict"] == "GO", report
    (rank,) = report["rehearsal"]["ranks"]
    assert rank["steps"] == 1
    assert not any("has no" in assumed["what"] for assumed in rank["assumptions"]), rank["assumptions"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [QWEN2, LLAVA, QWEN2_VL, WHISPER, VIT, WAV2VEC2_BERT, DIA], ids=lambda config: str(config["model_type"])
)
def test_a_real_model_takes_the_batch_and_gives_a_loss(tmp_path: Path, config: dict[str, Any]) -> None:
    from gonogo.virtual.synthetic.batch import build_batch
    from gonogo.virtual.synthetic.model import read_model

    found = read_model(str(written(tmp_path / "model", "config.json", config).parent))
    batch = build_batch(found, seq_len=48, micro_batch=2)
    model = found.model_class(found.config)
    loss = model(**batch).loss
    loss.backward()
    assert loss.isfinite()
    codebooks = found.config.decoder_config.num_channels if config is DIA else 1
    assert batch["labels"].shape[0] == 2 * codebooks
    assert "input_ids" not in batch or batch["input_ids"].shape[0] == 2
    towers = [p for name, p in model.named_parameters() if ("vision" in name or "visual" in name) and p.requires_grad]
    assert not towers or any(p.grad is not None for p in towers)


def test_a_command_goes_without_the_option() -> None:
    assert SyntheticOptions().to_command(["python", "train.py"], None, None, 2) == ["python", "train.py"]


def test_the_command_is_a_launch_of_the_shipped_program(tmp_path: Path) -> None:
    model = written(tmp_path / "model", "config.json", QWEN2).parent
    words = SyntheticOptions(model, seq_len=128, micro_batch=2).to_command(None, "4xA100-40G", 2, 3)
    assert words[:5] == ["torchrun", "--nnodes", "2", "--nproc_per_node", "4"]
    assert words[5:] == [
        *("-m", "gonogo.virtual.synthetic", "--model", str(model), "--steps", "3"),
        *("--seq-len", "128", "--micro-batch", "2"),
    ]


@pytest.mark.parametrize(
    ("files", "model", "said"),
    [
        ({}, "nowhere", "nowhere: it does not exist"),
        ({"README.md": "a model"}, ".", "has no config.json"),
        ({"config.json": "{"}, ".", "config.json: it can't be read as JSON"),
        ({"config.json": "[]"}, ".", "config.json: not a JSON object"),
        ({"config.json": "{}"}, "config.json", "it has no model_type"),
    ],
)
def test_what_is_no_model_is_said_in_one_line(tmp_path: Path, files: dict[str, str], model: str, said: str) -> None:
    for name, text in files.items():
        written(tmp_path, name, text)
    with pytest.raises(UserError) as raised:
        SyntheticOptions(tmp_path / model).to_command(None, None, None, 2)
    assert said in raised.value.text.en
    assert "\n" not in raised.value.text.en


def test_a_command_beside_the_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="remove the command"):
        SyntheticOptions(tmp_path).to_command(["python", "train.py"], None, None, 2)


def test_options_of_the_batch_are_refused_without_it() -> None:
    with pytest.raises(UserError, match="--seq-len can only be used with --synthetic-batch"):
        SyntheticOptions(seq_len=64).to_command(["python", "train.py"], None, None, 2)


def test_published_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    command = SyntheticOptions(Path("Qwen/Qwen3-8B")).to_command(None, "1xH100-80G", None, 1)
    folder = Path(command[command.index("--model") + 1])
    assert (folder / "config.json").is_file()
    assert (folder / "tokenizer.json").is_file()
    with pytest.raises(UserError, match="does not exist"):
        SyntheticOptions(Path("nobody/none")).to_command(None, "1xH100-80G", None, 1)
