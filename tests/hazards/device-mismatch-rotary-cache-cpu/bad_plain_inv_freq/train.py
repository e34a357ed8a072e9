import torch
import deepspeed
from rotary import RotaryEmbedding

engine, _, _, _ = deepspeed.initialize(model=build(RotaryEmbedding(64)), config="ds.json")
