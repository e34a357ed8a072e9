#!/bin/bash
#SBATCH --gres=gpu:a100:4
torchrun --standalone --nproc_per_node 4 train.py
