#!/bin/bash
source /usr/local/Ascend/ascend-toolkit/set_env.sh
export HCCL_CONNECT_TIMEOUT=3600
torchrun --nnodes 2 --node_rank $RANK --master_addr 10.0.0.4 --nproc_per_node 8 train.py
