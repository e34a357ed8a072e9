from transformers import AutoModelForCausalLM
from trl import SFTTrainer

model = AutoModelForCausalLM.from_pretrained("openai/gpt-oss-20b", attn_implementation="eager")
SFTTrainer(model=model).train()
