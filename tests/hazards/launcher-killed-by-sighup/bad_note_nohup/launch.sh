#!/bin/bash
nohup torchrun --nproc_per_node 8 train.py --deepspeed ds_config.json > train.log 2>&1 &
