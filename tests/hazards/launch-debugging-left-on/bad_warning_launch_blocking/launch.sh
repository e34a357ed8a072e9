#!/bin/bash
export CUDA_LAUNCH_BLOCKING=1
export TORCH_DISTRIBUTED_DEBUG=DETAIL
torchrun --nproc_per_node 8 train.py
