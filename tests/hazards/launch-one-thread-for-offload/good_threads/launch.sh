#!/bin/bash
OMP_NUM_THREADS=16 torchrun --nproc_per_node 8 train.py --deepspeed ds_config.json
deepspeed --num_gpus 8 train.py --deepspeed ds_config.json
OMP_NUM_THREADS=1 torchrun --nproc_per_node 8 train.py --deepspeed ds_gpu.json
