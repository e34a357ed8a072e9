#!/bin/bash
export MASTER_ADDR=10.0.0.4
export MASTER_PORT=29500
torchrun --nnodes 2 --node_rank $NODE_RANK --nproc_per_node 8 --master_addr="$MASTER_ADDR" train.py \
    --deepspeed ds_config.json
