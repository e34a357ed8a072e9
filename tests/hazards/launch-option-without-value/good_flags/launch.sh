#!/bin/bash
torchrun --nproc_per_node 8 train.py --output_dir $OUT --bf16 --gradient_checkpointing --do_train \
    --learning_rate=1e-5 --weight_decay 0.
