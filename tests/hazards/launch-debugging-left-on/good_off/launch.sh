#!/bin/bash
export CUDA_LAUNCH_BLOCKING=0
export TORCH_DISTRIBUTED_DEBUG=INFO
export NCCL_DEBUG=INFO
torchrun --nproc_per_node 8 train.py
