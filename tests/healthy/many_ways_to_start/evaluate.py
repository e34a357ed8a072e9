import argparse

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

parser = argparse.ArgumentParser()
parser.add_argument("--checkpoint", required=True)
args = parser.parse_args()
tokenizer = AutoTokenizer.from_pretrained(args.checkpoint)
model = AutoModelForCausalLM.from_pretrained(args.checkpoint, torch_dtype=torch.bfloat16, device_map="cuda")
model.eval()
inputs = tokenizer("The capital of France is", return_tensors="pt").to(model.device)
with torch.no_grad():
    print(tokenizer.decode(model.generate(**inputs, max_new_tokens=16)[0]))
