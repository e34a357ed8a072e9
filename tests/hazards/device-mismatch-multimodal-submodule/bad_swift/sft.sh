#!/bin/bash
NPROC_PER_NODE=4 \
CUDA_VISIBLE_DEVICES=0,1,2,3 \
swift sft \
    --model Qwen/Qwen2.5-Omni-7B \
    --dataset data/train.jsonl \
    --deepspeed ds_config.json
