from datasets import load_dataset
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

model = AutoModelForCausalLM.from_pretrained(
    "Qwen/Qwen2.5-7B", quantization_config=BitsAndBytesConfig(load_in_4bit=True)
)
trainer = SFTTrainer(model=model, args=SFTConfig(output_dir="out"), train_dataset=load_dataset("trl-lib/Capybara", split="train"))
trainer.train()
