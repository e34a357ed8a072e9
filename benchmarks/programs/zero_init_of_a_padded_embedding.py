"""A Llama classifier with a padding token is made under zero.Init, and transformers is not told of ZeRO-3.

truth: NO-GO
says: index 0 is out of bounds for dimension 0 with size 0
why: transformers zeroes the padding row of an embedding that has no rows here; an HfDeepSpeedConfig would gather it.
"""

import deepspeed
import torch
import torch.distributed as dist
from start import start
from transformers import LlamaConfig, LlamaForSequenceClassification

device = start()
size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
config = {
    "train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {"stage": 3},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
}
with deepspeed.zero.Init(config_dict_or_path=config):
    model = LlamaForSequenceClassification(LlamaConfig(vocab_size=64, pad_token_id=0, num_labels=2, **size))
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for _ in range(8):
    tokens = torch.randint(1, 64, (2, 12), device=device)
    engine.backward(engine(input_ids=tokens, labels=torch.tensor([0, 1], device=device)).loss)
    engine.step()
dist.destroy_process_group()
