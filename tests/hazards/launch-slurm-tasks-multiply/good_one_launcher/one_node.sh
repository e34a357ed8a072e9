#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
torchrun --nproc_per_node 8 train.py
