#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 train.py --seed 1 > seed1.log 2>&1 &
CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc_per_node 2 train.py --seed 2 > seed2.log 2>&1 &
wait
