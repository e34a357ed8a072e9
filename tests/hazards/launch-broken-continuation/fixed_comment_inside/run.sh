#!/bin/bash
if [ -d data ]; then
    # --resume_from_checkpoint out/checkpoint-500
    # A100
    accelerate launch --config_file zero3.yaml train.py \
        --data data \
        --bf16 true \
        --output_dir out
fi
