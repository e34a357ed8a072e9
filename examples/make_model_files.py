"""Writes the small files in the examples' model folders that stand for large published ones.

A published tokenizer weighs several megabytes; these have the 256 bytes and the special tokens, at the ids that the
published configurations name. Qwen2.5-Omni's speakers have a short reference each. There are no weights. Run it from
anywhere: ``python examples/make_model_files.py``.
"""

import json
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

HERE = Path(__file__).parent

CHAT = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

QWEN2_5 = dict(zip(CHAT, range(151643, 151646), strict=True))
QWEN2_5_OMNI = QWEN2_5 | {"<|AUDIO|>": 151646, "<|audio_bos|>": 151647, "<|audio_eos|>": 151648}
MINICPM_V = dict(zip(CHAT, range(248044, 248047), strict=True)) | {
    "<|image_pad|>": 248056,
    "<|video_pad|>": 248057,
    "<image>": 248078,
    "</image>": 248079,
    "<slice>": 248080,
    "</slice>": 248081,
    "<image_id>": 248082,
    "</image_id>": 248083,
}

SPECIAL_TOKENS = {
    "qwen_omni_audio_zero3": QWEN2_5_OMNI,
    "minicpmv_zero3_offload": MINICPM_V,
    "qwen_72b_zero3_offload": QWEN2_5,
    "qwen_7b_device_map": QWEN2_5,
    "slam_omni_dummy_loss": QWEN2_5,
    "grpo_7b_colocated_weight_sync": QWEN2_5,
}


def byte_level(special_tokens: dict[str, int]) -> Tokenizer:
    """A tokenizer of single bytes, with the special tokens at the ids given."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: number for number, character in enumerate(alphabet)} | special_tokens
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special_tokens])
    return tokenizer


def main() -> None:
    for example, special_tokens in SPECIAL_TOKENS.items():
        folder = HERE / example / "model"
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer = json.loads(byte_level(special_tokens).to_str())
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=True, indent=1) + "\n")
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": 32768,
            "padding_side": "right",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "clean_up_tokenization_spaces": False,
        }
        (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")

    # bos_token, cond (the speaker's embedding) and ref_mel (reference speech) are what the published file holds.
    speakers = {
        name: {"bos_token": bos_token, "cond": torch.zeros(1, 192), "ref_mel": torch.zeros(1, 10, 80)}
        for name, bos_token in (("Chelsie", 151872), ("Ethan", 151873))
    }
    torch.save(speakers, HERE / "qwen_omni_audio_zero3" / "model" / "spk_dict.pt")


if __name__ == "__main__":
    main()
