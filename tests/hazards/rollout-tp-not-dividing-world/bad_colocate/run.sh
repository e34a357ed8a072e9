#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1,2 NPROC_PER_NODE=3 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B --use_vllm true --vllm_mode colocate --vllm_tensor_parallel_size 2
