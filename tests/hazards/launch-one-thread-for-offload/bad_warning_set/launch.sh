#!/bin/bash
export OMP_NUM_THREADS=1
torchrun --nproc_per_node 8 train.py --deepspeed ds_config.json
