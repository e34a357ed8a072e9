#!/bin/bash
torchrun --nproc_per_node 8 train.py \
    --learning_rate 1e-5 \
    --bf16 true \
    --deepspeed ds_config.json \
    --learning_rate 2e-4 \
    --output_dir out
