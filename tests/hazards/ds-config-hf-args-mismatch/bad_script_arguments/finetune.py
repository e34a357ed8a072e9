from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

args = TrainingArguments(
    output_dir="out",
    deepspeed="ds_config.json",
    per_device_train_batch_size=2,
    bf16=True,
)
model = AutoModelForCausalLM.from_pretrained("models/qwen2-7b")
Trainer(model=model, args=args, train_dataset=[]).train()
