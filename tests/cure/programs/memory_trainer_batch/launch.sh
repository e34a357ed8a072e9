#!/bin/bash
# Continued pretraining on two cards of 24 GB.
torchrun --nproc_per_node 2 train.py \
    --output_dir output \
    --bf16 True \
    --per_device_train_batch_size 16 \
    --gradient_accumulation_steps 1 \
    --learning_rate 2e-5 \
    --max_steps 100 \
    --save_strategy no \
    --report_to none \
    --deepspeed ds_config.json
