"""Each of the two ranks of one engine asks it for answers to prompts of its own."""

import os

import torch
import torch.distributed as dist
from vllm import LLM, SamplingParams

PROMPTS = ([3, 4, 5, 6, 7, 8], [3, 4, 5])


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    llm = LLM("model", tensor_parallel_size=2, distributed_executor_backend="external_launcher", max_num_seqs=8)
    mine = {"prompt_token_ids": PROMPTS[dist.get_rank()]}
    answers = llm.generate([mine], SamplingParams(n=4, max_tokens=32))
    dist.barrier()
    print(dist.get_rank(), len(answers))


if __name__ == "__main__":
    main()
