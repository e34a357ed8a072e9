from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from trl import PPOConfig, PPOTrainer

args = PPOConfig(output_dir="out", bf16=True, deepspeed="ds_config.json", save_strategy="no")
name = "Qwen/Qwen2.5-1.5B-Instruct"
tokenizer = AutoTokenizer.from_pretrained(name, padding_side="left")
policy = AutoModelForCausalLM.from_pretrained(name)
reference = AutoModelForCausalLM.from_pretrained(name)
value = AutoModelForSequenceClassification.from_pretrained("reward", num_labels=1)
reward = AutoModelForSequenceClassification.from_pretrained("reward", num_labels=1)
trainer = PPOTrainer(
    args=args,
    processing_class=tokenizer,
    model=policy,
    ref_model=reference,
    reward_model=reward,
    value_model=value,
    train_dataset=load_dataset("parquet", data_files="prompts.parquet", split="train"),
)
trainer.train()
