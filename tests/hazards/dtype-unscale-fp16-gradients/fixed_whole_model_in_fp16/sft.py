import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("/models/Llama-2-7b", torch_dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained("/models/Llama-2-7b")
args = TrainingArguments("out", per_device_train_batch_size=1, fp16=True)
trainer = Trainer(model=model, args=args, train_dataset=rows(tokenizer))
trainer.train()
