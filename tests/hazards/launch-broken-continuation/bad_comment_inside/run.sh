#!/bin/bash
if [ -d data ]; then
    accelerate launch --config_file zero3.yaml train.py \
        --data data \
        # --resume_from_checkpoint out/checkpoint-500 \
        --bf16 true \  # A100
        --output_dir out
fi
