from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def short(prompts, completions):
    return [-float(len(one)) for one in completions]


GRPOTrainer(
    model="Qwen/Qwen3-4B",
    reward_funcs=[short],
    args=GRPOConfig(output_dir="out"),
    train_dataset=load_dataset("trl-lib/tldr", split="train"),
).train()
