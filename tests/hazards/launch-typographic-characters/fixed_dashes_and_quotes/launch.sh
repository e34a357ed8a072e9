#!/bin/bash
# 从网页复制——请检查
deepspeed --num_gpus 4 train.py \
    --deepspeed ds_config.json \
    --bf16 true \
    --data_path "data/train.jsonl" \
    --output_dir out
