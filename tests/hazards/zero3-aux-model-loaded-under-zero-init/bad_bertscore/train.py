import torch
from datasets import load_dataset
from decoding import decode
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments


import evaluate

bertscore = evaluate.load("bertscore")


def compute_metrics(prediction):
    texts, references = decode(prediction)
    return {"f1": bertscore.compute(predictions=texts, references=references, lang="en")["f1"][0]}


def main():
    (training_args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B-Instruct")
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct", torch_dtype=torch.bfloat16)
    trainer = Trainer(model=model, args=training_args, compute_metrics=compute_metrics, train_dataset=load_dataset("json", data_files="train.jsonl")["train"])
    trainer.train()


if __name__ == "__main__":
    main()
