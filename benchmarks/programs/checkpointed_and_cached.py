"""The loss takes the cache's length to know how many positions there are; gradient checkpointing turns the cache off.

truth: NO-GO
says: 'NoneType' object has no attribute 'get_seq_length'
why: in training a checkpointed Llama sets use_cache to False, so that past_key_values is None.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaConfig, LlamaForCausalLM

device = start()
size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, use_cache=True, **size)).to(device)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.train()
wrapped = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    tokens = torch.randint(0, 64, (2, 12), device=device)
    output = wrapped(input_ids=tokens, labels=tokens, use_cache=True)
    positions = output.past_key_values.get_seq_length()
    (output.loss / positions).backward()
    optimizer.step()
    optimizer.zero_grad()
