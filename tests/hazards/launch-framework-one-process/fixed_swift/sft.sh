#!/bin/bash
export CUDA_VISIBLE_DEVICES=0,1,2
export MAX_PIXELS=1003520
export NPROC_PER_NODE=3
swift sft \
    --model deepseek-ai/deepseek-vl2-tiny \
    --dataset data/train.jsonl \
    --deepspeed zero3
