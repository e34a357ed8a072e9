#!/bin/bash
CUDA_VISIBLE_DEVICES=0 swift sft --model Qwen/Qwen2.5-7B-Instruct --dataset d.jsonl --deepspeed ds_config.json
