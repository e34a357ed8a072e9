#!/bin/bash
NNODES=2 NODE_RANK=0 NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B-Instruct --dataset data.jsonl --deepspeed zero3
