#!/bin/bash
export PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb=128,garbage_collection_threshold:0.8"
torchrun --nproc_per_node 8 train.py
