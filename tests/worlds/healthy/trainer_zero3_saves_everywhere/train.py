"""The Hugging Face Trainer with DeepSpeed ZeRO-3: samples of all lengths, evaluation, saving on all ranks."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments


class Report(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            print("step", state.global_step)


class Corpus(torch.utils.data.Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return {"input_ids": torch.arange(8 + index)}


def collate(samples):
    input_ids = torch.nn.utils.rnn.pad_sequence([sample["input_ids"] for sample in samples], batch_first=True)
    return {"input_ids": input_ids, "labels": input_ids}


def main():
    arguments = TrainingArguments(
        output_dir="output", per_device_train_batch_size=1, per_device_eval_batch_size=1, max_steps=2,
        eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=2, report_to=[],
        deepspeed="ds_config.json", logging_steps=1, use_cpu=not torch.cuda.is_available(),
    )  # fmt: skip
    config = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    trainer = Trainer(
        model=LlamaForCausalLM(config), args=arguments, train_dataset=Corpus(7), eval_dataset=Corpus(3),
        data_collator=collate, callbacks=[Report()],
    )  # fmt: skip
    trainer.train()
    trainer.save_model("output/final")
    if trainer.is_world_process_zero():
        print("done")


if __name__ == "__main__":
    main()
