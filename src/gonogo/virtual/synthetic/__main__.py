"""``python -m gonogo.virtual.synthetic``: the program that ``gonogo rehearse --synthetic-batch`` launches."""

from __future__ import annotations

import argparse

from gonogo.virtual.synthetic.program import ProgramOptions, train


def _parse_options() -> ProgramOptions:
    parser = argparse.ArgumentParser(prog="python -m gonogo.virtual.synthetic", description=__doc__)
    parser.add_argument("--model", required=True, help="a folder with config.json, or such a file")
    parser.add_argument("--deepspeed", help="DeepSpeed's config; without it, torch's DistributedDataParallel")
    parser.add_argument("--seq-len", type=int, default=512)
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--local_rank", "--local-rank", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    return ProgramOptions(
        model=given.model,
        deepspeed=given.deepspeed,
        seq_len=given.seq_len,
        micro_batch=given.micro_batch,
        steps=given.steps,
        gradient_checkpointing=given.gradient_checkpointing,
    )


if __name__ == "__main__":
    train(_parse_options())
