from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("gpt2")
rows = load_dataset("json", data_files="train.jsonl", split="train")
rows = rows.map(lambda row: tokenizer(row["text"], truncation=True))
Trainer(
    model=AutoModelForCausalLM.from_pretrained("gpt2"),
    args=TrainingArguments("out"),
    train_dataset=rows,
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
).train()
