import torch
from model import GPT

device = torch.device("cpu")
model = GPT(50304, 768)
model.load_state_dict(torch.load("gpt.pt", map_location=device, weights_only=True))
model.to(device)
torch.onnx.export(model, (torch.zeros(1, 8, dtype=torch.long, device=device),), "gpt.onnx")
