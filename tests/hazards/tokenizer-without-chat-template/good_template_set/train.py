import sys

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B")
tokenizer.chat_template = open("template.jinja").read()
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")


def to_text(row):
    return {"text": tokenizer.apply_chat_template(row["messages"], tokenize=False)}


data = load_dataset("json", data_files=sys.argv[1])["train"].map(to_text)
trainer = SFTTrainer(model=model, args=SFTConfig(output_dir="out"), train_dataset=data, processing_class=tokenizer)
trainer.train()
