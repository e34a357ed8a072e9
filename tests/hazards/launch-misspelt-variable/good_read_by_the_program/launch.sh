#!/bin/bash
export CUDA_VISIBLE_DEVICE=4,5
export MASTER_ADDRESS=10.0.0.4
CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICE torchrun --nproc_per_node 2 --master_addr $MASTER_ADDRESS train.py
