#!/usr/bin/env bash
torchrun --nproc_per_node 4 sft.py --output_dir out --bf16 True
