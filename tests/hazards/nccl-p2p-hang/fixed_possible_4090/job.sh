#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:rtx4090:4
export NCCL_P2P_DISABLE=1
torchrun --standalone --nproc_per_node 4 train.py
