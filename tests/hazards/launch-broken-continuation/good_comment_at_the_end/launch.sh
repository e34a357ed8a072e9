#!/bin/bash
# the options:
OPTIONS=(
    --bf16 true
    --learning_rate 1e-5  # no backslash is needed here
)
torchrun --nproc_per_node 8 train.py "${OPTIONS[@]}" \
    --output_dir out \
    # --report_to wandb

echo finished
