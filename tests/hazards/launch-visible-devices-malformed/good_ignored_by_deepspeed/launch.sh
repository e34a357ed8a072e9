#!/bin/bash
export CUDA_VISIBLE_DEVICES=4,5,5
deepspeed train.py --deepspeed ds_config.json
CUDA_VISIBLE_DEVICES=4,5, torchrun --nproc_per_node 2 train.py
