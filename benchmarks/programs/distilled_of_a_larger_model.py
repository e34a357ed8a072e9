"""A student learns a frozen teacher's logits and, through a projection, its hidden states; an average of it is kept.

truth: GO
why: the frozen teacher is not wrapped, the projection is part of what is wrapped, the average is in float.
"""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from start import start
from torch.nn.parallel import DistributedDataParallel


class Reader(torch.nn.Module):
    def __init__(self, width, teacher_width=None):
        super().__init__()
        self.words = torch.nn.Embedding(32, width)
        layer = torch.nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.1, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(width, 32)
        self.projected = torch.nn.Linear(width, teacher_width) if teacher_width else torch.nn.Identity()

    def forward(self, words, mask):
        hidden = self.layers(self.words(words), src_key_padding_mask=~mask)
        return self.head(hidden), self.projected(hidden)


device = start()
torch.manual_seed(0)
teacher = Reader(32).to(device).eval().requires_grad_(False)
student = DistributedDataParallel(Reader(16, teacher_width=32).to(device))
average = copy.deepcopy(student.module).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
for step in range(10):
    lengths = torch.tensor([9, 4 + step % 3, 7])
    words = torch.randint(0, 32, (3, 9), device=device)
    mask = (torch.arange(9)[None] < lengths[:, None]).to(device)
    with torch.no_grad():
        wanted, states = teacher(words, mask)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        logits, hidden = student(words, mask)
    soft = F.kl_div(F.log_softmax(logits.float()[mask] / 2, -1), F.softmax(wanted[mask] / 2, -1), reduction="batchmean")
    loss = 4 * soft + F.mse_loss(hidden.float()[mask], states[mask])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        for kept, now in zip(average.parameters(), student.module.parameters(), strict=True):
            kept.lerp_(now, 0.01)
if dist.get_rank() == 0:
    torch.save(average.state_dict(), "average.pt")
dist.barrier()
dist.destroy_process_group()
