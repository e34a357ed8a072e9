import torch
from safetensors.torch import save_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model", torch_dtype=torch.bfloat16)
train(model)
save_model(model, "tuned.safetensors")
