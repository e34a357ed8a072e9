"""A recommender: the item table with sparse gradients and SparseAdam, the towers in DDP with AdamW.

truth: GO
why: the table's rows are gathered over the ranks as indices and values of one size, which all ranks have.
"""

import torch
import torch.distributed as dist
from start import start
from torch.nn.parallel import DistributedDataParallel

device = start()
torch.manual_seed(1)
items = torch.nn.EmbeddingBag(5000, 16, mode="sum", sparse=True).to(device)
towers = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU()).to(device))
sparse, dense = torch.optim.SparseAdam(list(items.parameters()), lr=1e-3), torch.optim.AdamW(towers.parameters())
chance = torch.Generator().manual_seed(dist.get_rank())
world = dist.get_world_size()
for _ in range(8):
    clicked = torch.randint(5000, (16, 5), generator=chance).to(device)
    offered = torch.randint(5000, (16, 1), generator=chance).to(device)
    users, offers = towers(torch.cat([items(clicked), items(offered)])).chunk(2)
    torch.nn.functional.cross_entropy(users @ offers.T, torch.arange(16, device=device)).backward()
    gradient = items.weight.grad
    indices, values = gradient._indices().contiguous(), gradient._values().contiguous()
    all_indices = [torch.empty_like(indices) for _ in range(world)]
    all_values = [torch.empty_like(values) for _ in range(world)]
    dist.all_gather(all_indices, indices)
    dist.all_gather(all_values, values)
    joined = torch.sparse_coo_tensor(torch.cat(all_indices, 1), torch.cat(all_values) / world, gradient.shape)
    items.weight.grad = joined.coalesce()
    sparse.step()
    dense.step()
    sparse.zero_grad()
    dense.zero_grad()
dist.destroy_process_group()
