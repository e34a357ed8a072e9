#!/bin/bash
MODEL_PATH=models/qwen2-7b
DATA_PATH=data/train.jsonl
torchrun --nproc_per_node 8 train.py \
    --model_name_or_path $MODEL_PATH \
    --data_path "${DATA_PATH}" \
    --bf16 true
