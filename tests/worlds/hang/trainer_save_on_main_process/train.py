"""Fine-tuning with the Hugging Face Trainer and DeepSpeed ZeRO-3."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Corpus(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        tokens = torch.arange(16) + index
        return {"input_ids": tokens, "labels": tokens}


def main():
    arguments = TrainingArguments(
        output_dir="output", per_device_train_batch_size=1, max_steps=2, save_strategy="no", report_to=[],
        deepspeed="ds_config.json", logging_steps=1, use_cpu=not torch.cuda.is_available(),
    )  # fmt: skip
    config = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    trainer = Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=Corpus())
    trainer.train()
    if trainer.is_world_process_zero():
        trainer.save_model("output/final")


if __name__ == "__main__":
    main()
