import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments



def main():
    (training_args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B-Instruct")
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct", torch_dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))
    trainer = Trainer(model=model, args=training_args, train_dataset=load_dataset("json", data_files="train.jsonl")["train"])
    trainer.train()
    merged = trainer.model.merge_and_unload()
    merged.save_pretrained("out/merged")


if __name__ == "__main__":
    main()
