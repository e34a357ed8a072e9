#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1,2,3
NNODES=1
NCCL_DEBUG=WARN
export NCCL_DEBUG
MASTER_PORT=29501
deepspeed --include localhost:$CUDA_VISIBLE_DEVICES --master_port $MASTER_PORT train.py
