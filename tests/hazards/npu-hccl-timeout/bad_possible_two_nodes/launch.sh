#!/bin/bash
source /usr/local/Ascend/ascend-toolkit/set_env.sh
export ASCEND_RT_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
torchrun --nnodes 2 --node_rank $RANK --master_addr 10.0.0.4 --nproc_per_node 8 train.py
