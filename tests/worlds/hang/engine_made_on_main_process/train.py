"""The main process makes an engine for all, and sends what it has written to the others."""

import os

import torch
import torch.distributed as dist
from vllm import LLM, SamplingParams


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    answers = [None]
    if dist.get_rank() == 0:
        llm = LLM("model", distributed_executor_backend="external_launcher", max_num_seqs=8)
        written = llm.generate({"prompt_token_ids": [3, 4, 5]}, SamplingParams(max_tokens=8))
        answers = [written[0].outputs[0].token_ids]
    dist.broadcast_object_list(answers)
    print(dist.get_rank(), len(answers[0]))


if __name__ == "__main__":
    main()
