#!/bin/bash
deepspeed --num_gpus 8 train.py
torchrun --nproc_per_node 8 train.py
python -m torch.distributed.launch --nproc_per_node 8 train.py
