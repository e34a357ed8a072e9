#!/bin/bash
export http_proxy=http://10.20.0.3:3128
CUDA_VISIBLE_DEVICES=1,2,3 NPROC_PER_NODE=3 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B --use_vllm true --vllm_mode server --vllm_server_host 127.0.0.1 --vllm_server_port 8000
