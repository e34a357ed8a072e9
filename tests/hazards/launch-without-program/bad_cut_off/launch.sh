#!/bin/bash
export NCCL_DEBUG=WARN
torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint node0:29500
train.py --deepspeed ds_config.json
