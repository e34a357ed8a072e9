"""Questions in text, answers in text and (most of them) speech codes."""

import json

import torch
from torch.utils.data import Dataset

IGNORE_INDEX = -100


class SpeechChatDataset(Dataset):
    def __init__(self, path, tokenizer, max_length, audio_vocab_size, code_layer):
        with open(path, encoding="utf-8") as f:
            self.rows = [json.loads(line) for line in f]
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.audio_vocab_size = audio_vocab_size
        self.code_layer = code_layer

    def __len__(self):
        return len(self.rows)

    def speech(self, row):
        """The answer's codes, (frames, code_layer); none for a row that is text only."""
        if "codec_seed" not in row:
            return torch.empty(0, self.code_layer, dtype=torch.long)
        generator = torch.Generator().manual_seed(row["codec_seed"])
        return torch.randint(1, self.audio_vocab_size, (row["codec_frames"], self.code_layer), generator=generator)

    def __getitem__(self, index):
        row = self.rows[index]
        prompt = self.tokenizer(f"<|im_start|>user\n{row['question']}<|im_end|>\n<|im_start|>assistant\n").input_ids
        answer = self.tokenizer(f"{row['answer']}<|im_end|>").input_ids
        speech = self.speech(row)

        text_length = len(prompt) + len(answer)
        length = min(text_length + len(speech), self.max_length)
        pad = self.tokenizer.pad_token_id
        input_ids = torch.full((self.max_length,), pad)
        input_ids[:text_length] = torch.tensor(prompt + answer)
        labels = torch.full((self.max_length,), IGNORE_INDEX)
        labels[len(prompt) : text_length] = torch.tensor(answer)
        codes = torch.zeros(self.max_length, self.code_layer, dtype=torch.long)
        codes[text_length:length] = speech[: length - text_length]
        code_labels = torch.full((self.max_length, self.code_layer), IGNORE_INDEX)
        code_labels[text_length:length] = speech[: length - text_length]
        return {
            "input_ids": input_ids,
            "attention_mask": (torch.arange(self.max_length) < length).long(),
            "codes": codes,
            "labels": labels,
            "code_labels": code_labels,
        }
