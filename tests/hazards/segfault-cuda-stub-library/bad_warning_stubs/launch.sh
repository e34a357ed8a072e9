#!/bin/bash
export LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs:/usr/local/cuda/lib64:$LD_LIBRARY_PATH
torchrun --nproc_per_node 8 train.py
