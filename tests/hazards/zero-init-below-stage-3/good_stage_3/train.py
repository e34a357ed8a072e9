import argparse

import deepspeed
import torch
from transformers import AutoConfig, AutoModelForCausalLM

parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
parser.add_argument("--local_rank", type=int, default=0)
args = parser.parse_args()
deepspeed.init_distributed()
with deepspeed.zero.Init(config_dict_or_path=args.deepspeed_config):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("model"), dtype=torch.bfloat16)
engine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
for _ in range(4):
    tokens = torch.randint(0, 1000, (1, 128), device=engine.device)
    loss = engine(input_ids=tokens, labels=tokens).loss
    engine.backward(loss)
    engine.step()
