#!/bin/bash
NPROC_PER_NODE=4 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-7B-Instruct --max_pixels 401408 --max_prompt_length 1024
