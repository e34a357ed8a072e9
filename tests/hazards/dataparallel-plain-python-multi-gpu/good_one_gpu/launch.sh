#!/bin/bash
CUDA_VISIBLE_DEVICES=0 python finetune.py --output_dir out
CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 finetune.py
CUDA_VISIBLE_DEVICES=0,1 python split.py
