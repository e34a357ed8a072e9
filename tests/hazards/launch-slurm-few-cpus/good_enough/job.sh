#!/bin/bash
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=4
#SBATCH --gres=gpu:8
torchrun --standalone --nproc_per_node 8 train.py
