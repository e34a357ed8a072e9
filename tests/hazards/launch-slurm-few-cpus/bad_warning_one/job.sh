#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --gres=gpu:8
torchrun --standalone --nproc_per_node 8 train.py --dataloader_num_workers 4
