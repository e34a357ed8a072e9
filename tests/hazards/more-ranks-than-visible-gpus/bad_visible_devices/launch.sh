#!/bin/bash
export CUDA_VISIBLE_DEVICES=2,3
GPUS_PER_NODE=8
torchrun --nproc_per_node $GPUS_PER_NODE train.py
