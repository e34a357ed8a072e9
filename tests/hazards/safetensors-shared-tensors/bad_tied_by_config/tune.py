import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model", torch_dtype=torch.bfloat16)
train(model)
save_file(model.state_dict(), "tuned.safetensors")
