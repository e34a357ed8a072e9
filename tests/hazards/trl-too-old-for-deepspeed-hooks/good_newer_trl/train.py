from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer
from data import prompts, reward

args = GRPOConfig(output_dir="out", bf16=True, deepspeed="ds_config.json")
trainer = GRPOTrainer(model="Qwen/Qwen2.5-7B-Instruct", reward_funcs=reward, args=args, train_dataset=prompts())
trainer.train()
