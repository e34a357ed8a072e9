import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments



def main():
    (training_args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B-Instruct")
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct", torch_dtype=torch.bfloat16)
    torch.nn.init.orthogonal_(model.lm_head.weight)
    trainer = Trainer(model=model, args=training_args, train_dataset=load_dataset("json", data_files="train.jsonl")["train"])
    trainer.train()


if __name__ == "__main__":
    main()
