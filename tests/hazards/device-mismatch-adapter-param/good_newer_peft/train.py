from peft import AdaLoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("/models/Llama-2-7b").cuda()
model = get_peft_model(model, AdaLoraConfig(init_r=12, target_r=8, task_type="CAUSAL_LM"))
