#!/bin/bash
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,roundup_power2_divisions:[256:1,512:2,>:4]
torchrun --nproc_per_node 8 train.py
