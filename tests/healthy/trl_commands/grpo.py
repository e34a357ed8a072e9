from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def length_reward(completions, **kwargs):
    return [-abs(200 - len(completion)) / 200 for completion in completions]


def main():
    data = load_dataset("trl-lib/tldr", split="train")
    config = GRPOConfig(
        output_dir="Qwen2-0.5B-GRPO",
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        num_generations=8,
        max_completion_length=128,
        bf16=True,
        logging_steps=10,
        learning_rate=1e-6,
    )
    trainer = GRPOTrainer(model="Qwen/Qwen2-0.5B-Instruct", reward_funcs=length_reward, args=config, train_dataset=data)
    trainer.train()


if __name__ == "__main__":
    main()
