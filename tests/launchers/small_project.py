"""A folder as a user has it: a model of 2 layers with its tokenizer, a data set, DeepSpeed's configuration."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CHAT_TEMPLATE = (
    "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def make_project(folder: Path) -> None:
    """Write ``model/``, ``data/`` and ``ds_zero3.json``. The model has no weights: a rehearsal reads none."""
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"What is {a} plus {b}?"},
                {"role": "assistant", "content": f"{a} plus {b} is {a + b}."},
            ]
        }
        for a in range(8)
        for b in range(8)
    ]
    data = folder / "data"
    data.mkdir()
    (data / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    _write_json(data / "dataset_info.json", {"sums": _LLAMAFACTORY_DATA})
    texts = [message["content"] for row in rows for message in row["messages"]]
    _write_model(folder / "model", texts)
    _write_json(folder / "ds_zero3.json", _ZERO3)


_LLAMAFACTORY_DATA = {
    "file_name": "train.jsonl",
    "formatting": "sharegpt",
    "columns": {"messages": "messages"},
    "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"},
}
_ZERO3 = {
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True},
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
}


def _write_model(folder: Path, texts: list[str]) -> None:
    folder.mkdir()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=list(_SPECIAL), initial_alphabet=letters)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    pad, _, end = _SPECIAL
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": end,
            "pad_token": pad,
            "chat_template": _CHAT_TEMPLATE,
            "model_max_length": 512,
        },
    )
    _write_json(
        folder / "config.json",
        {
            "architectures": ["Qwen2ForCausalLM"],
            "model_type": "qwen2",
            "vocab_size": tokenizer.get_vocab_size(),
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "max_window_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 512,
            "torch_dtype": "bfloat16",
            "eos_token_id": tokenizer.token_to_id(end),
            "pad_token_id": tokenizer.token_to_id(pad),
        },
    )


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2))
