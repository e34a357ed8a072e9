#!/bin/bash
NPROC_PER_NODE=4 swift sft \
    --model Qwen/Qwen2.5-7B-Instruct \
    --dataset data.jsonl \
    --tuner_type lora \
    --deepspeed ds_config.json
