"""An engine on each GPU: the main process asks its own for a sample, and the others need not know of it."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from vllm import LLM, SamplingParams


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    llm = LLM(
        "model",
        distributed_executor_backend="external_launcher",
        enable_sleep_mode=True,
        gpu_memory_utilization=0.5,
        max_num_seqs=8,
    )
    policy = DistributedDataParallel(torch.nn.Linear(64, 64, device="cuda"))
    optimizer = torch.optim.AdamW(policy.parameters())
    prompt = {"prompt_token_ids": list(range(3, 8 + dist.get_rank()))}
    for _ in range(2):
        mine = llm.generate([prompt], SamplingParams(n=4, max_tokens=32))[0].outputs
        if dist.get_rank() == 0:
            print(llm.generate([prompt], SamplingParams(max_tokens=8))[0].outputs[0].text)
        llm.sleep(level=1)
        policy(torch.rand(len(mine), 64, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        llm.wake_up()
    dist.barrier()


if __name__ == "__main__":
    main()
