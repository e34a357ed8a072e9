"""What is made of a published model has what its own files have: keys that equal defaults, the inputs that it gives."""

from __future__ import annotations

import json
from typing import Any

import pytest
from prepare.published import all_models

from gonogo.evidence.published.models import FOLDER, full_config, published_model
from gonogo.prepare.generated.model_folder import model_files


def _file(name: str, file: str) -> dict[str, Any]:
    model = published_model(name)
    assert model is not None
    read: dict[str, Any] = json.loads(model_files(model)[file])
    return read


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("Qwen/Qwen2-VL-2B-Instruct", "attention_dropout", 0.0),
        ("Qwen/Qwen2-VL-2B-Instruct", "use_cache", True),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "attention_bias", False),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "initializer_range", 0.02),
        ("Qwen/Qwen2.5-7B-Instruct", "attention_dropout", 0.0),
        ("openai/whisper-small", "scale_embedding", False),
        ("google-t5/t5-small", "dropout_rate", 0.1),
        ("openai-community/gpt2", "resid_pdrop", 0.1),
    ],
)
def test_a_configuration_has_the_keys_that_the_library_wrote(name: str, key: str, value: object) -> None:
    assert _file(name, "config.json")[key] == value


def test_what_tells_a_model_apart_is_not_overwritten() -> None:
    for model in all_models():
        whole = full_config(model)
        assert {key: whole[key] for key in model.config} == model.config


def test_each_row_of_keys_has_its_source() -> None:
    table = json.loads((FOLDER / "config_keys.json").read_text(encoding="utf-8"))
    for model_type, row in table.items():
        assert row["source"].startswith("https://github.com/huggingface/transformers/blob/v4."), model_type
        assert all(value is None or isinstance(value, bool | int | float | str) for value in row["keys"].values())
        assert not {"vocab_size", "bos_token_id", "eos_token_id", "pad_token_id"} & set(row["keys"])


@pytest.mark.parametrize(
    "name",
    [
        "meta-llama/Meta-Llama-3-8B-Instruct",
        "meta-llama/Llama-3.1-8B-Instruct",
        "tiiuae/falcon-7b",
        "answerdotai/ModernBERT-base",
        "openai/gpt-oss-20b",
    ],
)
def test_a_tokenizer_gives_what_the_published_one_gives(name: str) -> None:
    """Without it the class of transformers 4 adds ``token_type_ids``, which these models don't take."""
    assert _file(name, "tokenizer_config.json")["model_input_names"] == ["input_ids", "attention_mask"]


@pytest.mark.parametrize("name", ["google-bert/bert-base-uncased", "Qwen/Qwen2.5-7B-Instruct"])
def test_others_leave_it_to_their_class(name: str) -> None:
    assert "model_input_names" not in _file(name, "tokenizer_config.json")
