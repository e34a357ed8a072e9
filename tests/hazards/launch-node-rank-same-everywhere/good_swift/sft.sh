#!/bin/bash
NNODES=2 NODE_RANK=$RANK NPROC_PER_NODE=8 MASTER_ADDR=10.0.0.4 swift sft --model Qwen/Qwen2.5-7B --dataset d.jsonl
