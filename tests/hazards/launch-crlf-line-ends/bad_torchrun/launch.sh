#!/bin/bash
torchrun --nproc_per_node 4 train.py \
    --bf16 true \
    --learning_rate 1e-5
