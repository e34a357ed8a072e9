#!/bin/bash
GPU=8
NODE0=10.0.0.4
torchrun --nproc_per_node $GPUS --nnodes $WORLD_SIZE --node_rank $RANK --master_addr $NODE1 train.py \
    --run_name ${RUN_NAME:-sft} --gpu $GPU --first $NODE0
