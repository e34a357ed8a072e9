import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from data import load


def main():
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-32B", torch_dtype=torch.bfloat16)
    args = TrainingArguments(output_dir="out", bf16=True, deepspeed="ds_config.json")
    Trainer(model=model, args=args, train_dataset=load()).train()


if __name__ == "__main__":
    main()
