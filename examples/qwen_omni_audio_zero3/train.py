"""Fine-tune the thinker of Qwen2.5-Omni on questions about sounds."""

import json
import os
from dataclasses import dataclass, field

import numpy as np
import torch
import transformers
from torch.utils.data import Dataset
from transformers import (
    AutoTokenizer,
    Qwen2_5OmniConfig,
    Qwen2_5OmniForConditionalGeneration,
    Trainer,
    WhisperFeatureExtractor,
)

IGNORE_INDEX = -100
SAMPLING_RATE = 16000


@dataclass
class Arguments(transformers.TrainingArguments):
    model_name_or_path: str = field(default="Qwen/Qwen2.5-Omni-7B")
    data_path: str = field(default="data/train.jsonl")
    model_max_length: int = field(default=2048)


def env_flag(name):
    """None where the variable is not set, so that the model's own config decides."""
    value = os.environ.get(name)
    return None if value is None else value.lower() in ("1", "true", "yes")


def waveform(tones_hz, seconds_each):
    """The tones, one after the other."""
    time = np.arange(int(SAMPLING_RATE * seconds_each)) / SAMPLING_RATE
    return np.concatenate([0.3 * np.sin(2 * np.pi * hz * time) for hz in tones_hz]).astype(np.float32)


def audio_tokens(frames):
    """How many tokens the audio tower makes of so many mel frames: a strided convolution, then pooling by two."""
    return ((frames - 1) // 2 + 1 - 2) // 2 + 1


class AudioChatDataset(Dataset):
    def __init__(self, path, tokenizer, feature_extractor, max_length):
        with open(path, encoding="utf-8") as f:
            self.rows = [json.loads(line) for line in f]
        self.tokenizer = tokenizer
        self.feature_extractor = feature_extractor
        self.max_length = max_length

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        features = self.feature_extractor(
            waveform(row["tones_hz"], row["seconds_each"]),
            sampling_rate=SAMPLING_RATE,
            padding="longest",
            truncation=False,
            return_attention_mask=True,
            return_tensors="np",
        )
        frames = int(features["attention_mask"].sum())
        audio = "<|audio_bos|>" + "<|AUDIO|>" * audio_tokens(frames) + "<|audio_eos|>"
        prompt = f"<|im_start|>user\n{audio}{row['question']}<|im_end|>\n<|im_start|>assistant\n"
        prompt_ids = self.tokenizer(prompt).input_ids
        answer_ids = self.tokenizer(f"{row['answer']}<|im_end|>\n").input_ids
        return {
            "input_ids": (prompt_ids + answer_ids)[: self.max_length],
            "labels": ([IGNORE_INDEX] * len(prompt_ids) + answer_ids)[: self.max_length],
            "input_features": features["input_features"][0, :, :frames],
        }


@dataclass
class Collator:
    pad_token_id: int

    def __call__(self, rows):
        longest = max(len(row["input_ids"]) for row in rows)
        frames = max(row["input_features"].shape[1] for row in rows)
        mels = rows[0]["input_features"].shape[0]
        batch = {
            "input_ids": torch.full((len(rows), longest), self.pad_token_id),
            "labels": torch.full((len(rows), longest), IGNORE_INDEX),
            "attention_mask": torch.zeros(len(rows), longest, dtype=torch.long),
            "input_features": torch.zeros(len(rows), mels, frames),
            "feature_attention_mask": torch.zeros(len(rows), frames, dtype=torch.long),
        }
        for i, row in enumerate(rows):
            length, width = len(row["input_ids"]), row["input_features"].shape[1]
            batch["input_ids"][i, :length] = torch.tensor(row["input_ids"])
            batch["labels"][i, :length] = torch.tensor(row["labels"])
            batch["attention_mask"][i, :length] = 1
            batch["input_features"][i, :, :width] = torch.from_numpy(row["input_features"])
            batch["feature_attention_mask"][i, :width] = 1
        return batch


def load_thinker(args):
    config = Qwen2_5OmniConfig.from_pretrained(args.model_name_or_path)
    enable_audio_output = env_flag("ENABLE_AUDIO_OUTPUT")
    if enable_audio_output is not None:
        config.enable_audio_output = enable_audio_output
    model = Qwen2_5OmniForConditionalGeneration.from_pretrained(
        args.model_name_or_path, config=config, dtype=torch.bfloat16
    )
    thinker = model.thinker  # speech output is not trained
    thinker.model.visual.requires_grad_(False)
    thinker.config.text_config.use_cache = False
    return thinker


def main():
    (args,) = transformers.HfArgumentParser(Arguments).parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    feature_extractor = WhisperFeatureExtractor.from_pretrained(args.model_name_or_path)
    trainer = Trainer(
        model=load_thinker(args),
        args=args,
        train_dataset=AudioChatDataset(args.data_path, tokenizer, feature_extractor, args.model_max_length),
        data_collator=Collator(tokenizer.pad_token_id),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
