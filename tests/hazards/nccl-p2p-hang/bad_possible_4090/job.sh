#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:rtx4090:4
torchrun --standalone --nproc_per_node 4 train.py
