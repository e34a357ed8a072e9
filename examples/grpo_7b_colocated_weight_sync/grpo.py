"""Qwen2.5-7B-Instruct on word problems, by GRPO with LoRA; vLLM generates in the trainer's processes."""

from dataclasses import dataclass

from datasets import load_dataset
from peft import LoraConfig
from transformers import HfArgumentParser
from trl import GRPOConfig, GRPOTrainer


@dataclass
class Settings:
    model: str = "model"
    data: str = "data/train.jsonl"
    lora_rank: int = 32


def right(completions, answer, **columns):
    """1 where the last number is the answer."""
    found = []
    for completion, wanted in zip(completions, answer, strict=True):
        words = completion.replace(",", "").replace(".", " ").split()
        numbers = [word for word in words if word.lstrip("-").isdigit()]
        found.append(float(bool(numbers) and numbers[-1] == wanted))
    return found


def main():
    settings, arguments = HfArgumentParser((Settings, GRPOConfig)).parse_args_into_dataclasses()
    arguments.model_init_kwargs = {"dtype": "bfloat16"}
    data = load_dataset("json", data_files=settings.data, split="train")
    adapters = LoraConfig(
        r=settings.lora_rank, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    trainer = GRPOTrainer(
        settings.model, reward_funcs=right, args=arguments, train_dataset=data, peft_config=adapters
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
