"""What ms-swift is told of a model's kind and template: no more than it needs, and by what the folder shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gonogo.evidence.published.swift_kind import infer_swift_options

CHATML = "<|im_start|>user {{ content }}<|im_end|>"
QWEN2_5 = f"{CHATML} You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
LLAMA_3 = "<|begin_of_text|><|start_header_id|>user<|end_header_id|>{{ content }}<|eot_id|>"


def folder_of(place: Path, name: str, architecture: str | None, chat: str = "", **config: str) -> Path:
    folder = place / name
    folder.mkdir()
    said = {} if architecture is None else {"architectures": [architecture]}
    (folder / "config.json").write_text(json.dumps({**said, **config}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": chat}))
    return folder


@pytest.mark.parametrize(
    ("name", "architecture", "chat", "told"),
    [
        ("model", "Qwen2ForCausalLM", QWEN2_5, ("qwen2", "qwen2_5")),
        ("model", "Qwen2ForCausalLM", CHATML, ("qwen2", "qwen")),
        ("Qwen2.5-7B-Instruct", "Qwen2ForCausalLM", QWEN2_5, ("", "")),  # ms-swift lists the name
        ("Qwen2___5-7B-Instruct", "Qwen2ForCausalLM", QWEN2_5, ("", "")),  # as ModelScope's download names it
        ("qwq-32b-mine", "Qwen2ForCausalLM", QWEN2_5, ("qwen2", "qwq")),
        ("model", "LlamaForCausalLM", LLAMA_3, ("llama", "llama3_2")),
        ("model", "LlamaForCausalLM", "[INST] {{ content }} [/INST]", ("llama", "llama")),
        ("zephyr-mine", "MistralForCausalLM", "", ("zephyr", "")),  # a kind with one template for all
        ("model", "Qwen3MoeForCausalLM", CHATML, ("", "qwen3_nothinking")),  # the only kind, with several templates
        ("model", "Gemma3ForCausalLM", "", ("", "")),
        ("scorer", "Qwen2ForSequenceClassification", CHATML, ("qwen2", "qwen")),
        ("model", "OwnForCausalLM", CHATML, ("", "")),  # ms-swift takes a template that adds nothing
    ],
)
def test_what_is_told(name: str, architecture: str, chat: str, told: tuple[str, str], tmp_path: Path) -> None:
    folder = folder_of(tmp_path, name, architecture, chat)
    found = infer_swift_options(str(folder), folder)
    assert (found.kind, found.template) == told


def test_where_the_folder_came_from_tells_too(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "model", "Qwen2ForCausalLM", _name_or_path="Qwen/QwQ-32B")
    assert infer_swift_options(str(folder), folder).template == "qwq"


def test_a_folder_that_ms_swift_wrote_tells_itself(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "checkpoint-100", "Qwen2ForCausalLM")
    (folder / "args.json").write_text("{}")
    assert infer_swift_options(str(folder), folder).kind == ""


def test_without_an_architecture_the_class_of_the_model_decides(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "model", None)
    assert infer_swift_options(str(folder), folder).kind == ""
    assert infer_swift_options(str(folder), folder, "Gemma3ForCausalLM").kind == "gemma3_text"


def test_a_name_of_the_hub_is_compared_by_itself(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "0123abc", "Qwen2ForCausalLM", QWEN2_5)
    assert infer_swift_options("Qwen/Qwen2.5-7B-Instruct", folder).kind == ""
    assert infer_swift_options("someone/own-model", folder).template == "qwen2_5"
