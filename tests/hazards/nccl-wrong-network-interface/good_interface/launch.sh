#!/bin/bash
export NCCL_SOCKET_IFNAME=^lo,docker0
torchrun --nnodes 2 --node_rank $NODE_RANK --master_addr 10.0.0.4 --nproc_per_node 8 train.py
