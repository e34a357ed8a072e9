#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 swift sft --model Qwen/Qwen2.5-7B --dataset d.jsonl --deepspeed zero2
CUDA_VISIBLE_DEVICES=0 swift sft --model Qwen/Qwen2.5-7B --dataset d.jsonl --deepspeed zero2
CUDA_VISIBLE_DEVICES=0,1 swift sft --model Qwen/Qwen2.5-7B --dataset d.jsonl
FORCE_TORCHRUN=1 CUDA_VISIBLE_DEVICES=0 llamafactory-cli train sft.yaml
CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train sft.yaml
