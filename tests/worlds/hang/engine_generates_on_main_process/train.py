"""Rolls out with an engine of two GPUs in the trainers' processes, and shows some answers from the main process."""

import os

import torch
import torch.distributed as dist
from vllm import LLM, SamplingParams

PROMPTS = [{"prompt_token_ids": [3, 4, 5, 6]}, {"prompt_token_ids": [3, 4, 5, 7, 8]}]


def show(llm):
    for answer in llm.generate(PROMPTS[:1], SamplingParams(max_tokens=8)):
        print(answer.outputs[0].text)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    llm = LLM("model", tensor_parallel_size=2, distributed_executor_backend="external_launcher", max_num_seqs=8)
    for step in range(3):
        llm.generate(PROMPTS, SamplingParams(max_tokens=32))
        if dist.get_rank() == 0 and step == 1:
            show(llm)
    dist.barrier()


if __name__ == "__main__":
    main()
