"""The two ranks of one engine gather their prompts before they ask it, and each keeps its own answers."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from vllm import LLM, SamplingParams

PROMPTS = ([3, 4, 5, 6, 7, 8], [3, 4, 5])


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    share = 0.5 if dist.get_rank() == 0 else 0.4  # the smaller cache is every rank's
    llm = LLM(
        "model",
        tensor_parallel_size=2,
        distributed_executor_backend="external_launcher",
        gpu_memory_utilization=share,
        max_num_seqs=8,
    )
    policy = DistributedDataParallel(torch.nn.Linear(64, 64, device="cuda"))
    optimizer = torch.optim.AdamW(policy.parameters())
    for _ in range(2):
        parts = [None, None]
        dist.all_gather_object(parts, PROMPTS[dist.get_rank()])
        answers = llm.generate([{"prompt_token_ids": part} for part in parts], SamplingParams(n=4, max_tokens=32))
        mine = answers[dist.get_rank()].outputs
        print(dist.get_rank(), [len(one.token_ids) for one in mine])
        policy(torch.rand(len(mine), 64, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()


if __name__ == "__main__":
    main()
