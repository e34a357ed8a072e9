#!/bin/bash
CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model Qwen/Qwen3-4B &
sleep 60
CUDA_VISIBLE_DEVICES=1,2,3 accelerate launch --num_processes 3 grpo.py --use_vllm True --vllm_mode server
