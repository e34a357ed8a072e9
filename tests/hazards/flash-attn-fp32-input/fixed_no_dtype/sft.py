import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("/models/Llama-2-7b", attn_implementation="flash_attention_2", torch_dtype=torch.bfloat16)
tokenizer = AutoTokenizer.from_pretrained("/models/Llama-2-7b")
args = TrainingArguments("out", per_device_train_batch_size=1, learning_rate=1e-5)
trainer = Trainer(model=model, args=args, train_dataset=rows(tokenizer))
trainer.train()
