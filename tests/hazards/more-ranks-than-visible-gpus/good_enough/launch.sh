#!/bin/bash
CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc_per_node 2 train.py
CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc_per_node 2 train.py
CUDA_VISIBLE_DEVICES=0 deepspeed --num_gpus 4 train.py
CUDA_VISIBLE_DEVICES=0 accelerate launch --gpu_ids 0,1 --num_processes 2 train.py
