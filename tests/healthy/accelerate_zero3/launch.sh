#!/bin/bash
set -e
accelerate launch --config_file accelerate_zero3.yaml train.py \
    --model Qwen/Qwen2.5-7B \
    --data data/chat.jsonl \
    --batch 2 \
    --epochs 2 \
    --lr 1e-5 \
    --out out/qwen7b
