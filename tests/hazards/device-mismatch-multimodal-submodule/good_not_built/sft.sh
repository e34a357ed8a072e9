#!/bin/bash
ENABLE_AUDIO_OUTPUT=0 NPROC_PER_NODE=4 swift sft --model Qwen/Qwen2.5-Omni-7B --dataset d.jsonl --deepspeed ds_config.json
NPROC_PER_NODE=4 swift sft --model Qwen/Qwen2.5-Omni-7B --dataset d.jsonl --deepspeed zero2.json
NPROC_PER_NODE=4 swift sft --model Qwen/Qwen2.5-VL-7B-Instruct --dataset d.jsonl --deepspeed ds_config.json
