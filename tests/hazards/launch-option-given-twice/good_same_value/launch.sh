#!/bin/bash
torchrun --nproc_per_node 8 train.py --learning_rate 1e-5 --lora_target_modules q --bf16 true \
    --lora_target_modules v --learning_rate 0.00001 --bf16 True "$@"
