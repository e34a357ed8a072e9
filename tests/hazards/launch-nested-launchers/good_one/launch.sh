#!/bin/bash
srun torchrun --nproc_per_node 8 train.py
torchrun --nproc_per_node 8 -m torchtune.cli.tune run x
torchrun --nproc_per_node 8 --no_python python train.py
accelerate launch --num_processes 8 deepspeed.py
