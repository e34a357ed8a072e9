#!/bin/bash
torchrun --nproc_per_node 8 train.py --output_dir --bf16 true \
    --learning_rate 1e-5
