from accelerate import Accelerator
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, HfArgumentParser, TrainingArguments

from data import load

(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
optimizer = AdamW(model.parameters(), lr=args.learning_rate)
loader = DataLoader(load(), batch_size=args.per_device_train_batch_size)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()
