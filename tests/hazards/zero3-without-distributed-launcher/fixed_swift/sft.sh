#!/bin/bash
export NPROC_PER_NODE=1
CUDA_VISIBLE_DEVICES=0 swift sft --model Qwen/Qwen2.5-7B-Instruct --dataset d.jsonl --deepspeed ds_config.json
