#!/bin/bash
torchrun --nproc_per_node 8 train.py \
    --model_name_or_path Qwen/Qwen2.5-7B \
    --output_dir output \
    --bf16 True \
    --deepspeed ds_config.json
