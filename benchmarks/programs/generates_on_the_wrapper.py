"""Every tenth step samples from the model, which DDP has wrapped.

truth: NO-GO
says: has no attribute 'generate'
why: DDP has no generate; it is the wrapped module's.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel
from transformers import GPT2Config, GPT2LMHeadModel

device = start()
config = GPT2Config(vocab_size=64, n_embd=16, n_layer=2, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=2)
model = DistributedDataParallel(GPT2LMHeadModel(config).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(20):
    tokens = torch.randint(3, 64, (2, 12), device=device)
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 9:
        print(model.generate(tokens[:1, :4], max_new_tokens=8))
