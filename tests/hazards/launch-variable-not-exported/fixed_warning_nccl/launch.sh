#!/bin/bash
export NCCL_P2P_DISABLE=1
GPUS=4
torchrun --nproc_per_node $GPUS train.py
