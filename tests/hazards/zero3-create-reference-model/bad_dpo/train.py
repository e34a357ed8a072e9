from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer, create_reference_model
from data import preferences

args = DPOConfig(output_dir="out", bf16=True, deepspeed="ds_config.json")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B-Instruct")
reference = create_reference_model(model)
DPOTrainer(model=model, ref_model=reference, args=args, train_dataset=preferences()).train()
