from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

rows = load_dataset("loaders/my_corpus.py", split="train")
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model=model, args=TrainingArguments("out"), train_dataset=rows).train()
