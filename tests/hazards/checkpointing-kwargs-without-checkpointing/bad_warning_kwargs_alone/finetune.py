from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

args = TrainingArguments(
    output_dir="out",
    gradient_checkpointing_kwargs={"use_reentrant": False},
)
model = AutoModelForCausalLM.from_pretrained("models/base")
Trainer(model=model, args=args, train_dataset=[]).train()
