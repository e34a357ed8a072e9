from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def reward(completions, **kwargs):
    return [float(len(one)) for one in completions]


args = GRPOConfig(
    output_dir="out", per_device_train_batch_size=1, gradient_accumulation_steps=5, num_generations=6
)
GRPOTrainer("Qwen/Qwen3-4B", reward, args=args, train_dataset=load_dataset("trl-lib/tldr", split="train")).train()
