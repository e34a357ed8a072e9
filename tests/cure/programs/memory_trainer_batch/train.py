"""Trains a small Llama with the Trainer; its arguments come from the launch script."""

import torch
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Corpus(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        tokens = torch.arange(2048) + index
        return {"input_ids": tokens, "labels": tokens}


def main():
    (arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    config = LlamaConfig(
        vocab_size=32000, hidden_size=2048, intermediate_size=5504, num_hidden_layers=6, num_attention_heads=16,
        num_key_value_heads=16,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    Trainer(model=model, args=arguments, train_dataset=Corpus()).train()


if __name__ == "__main__":
    main()
