#!/bin/bash
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
NPROC_PER_NODE=4 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B --use_vllm true --vllm_mode colocate --sleep_level 1
