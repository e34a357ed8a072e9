import os

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

PATH = os.path.expanduser("~/models/Qwen3-8B")
model = AutoModelForCausalLM.from_pretrained(PATH)
tokenizer = AutoTokenizer.from_pretrained(PATH)
args = TrainingArguments(output_dir="out", bf16=True, report_to="none")
trainer = Trainer(model=model, args=args, train_dataset=load_dataset("json", data_files="data.json", split="train"))
trainer.train()
