from datetime import timedelta

import torch.distributed as dist
from datasets import load_dataset

dist.init_process_group("nccl", timeout=timedelta(hours=2))
rows = load_dataset("json", data_files="train.jsonl", split="train")
if dist.get_rank() == 0:
    rows = rows.map(tokenize, num_proc=8)
dist.barrier()
rows = rows.map(tokenize, num_proc=8)
