#!/bin/bash
torchrun --nnodes ${NNODES:-1} --nproc_per_node 8 --master_addr ${MASTER_ADDR:-localhost} train.py
torchrun --nnodes 2 --node_rank 0 --master_addr localhost --nproc_per_node 8 train.py
torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $HOST:29500 train.py
torchrun --standalone --nnodes 1 --nproc_per_node 8 train.py
torchrun $DISTRIBUTED --nnodes 2 train.py
