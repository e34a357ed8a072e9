#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
srun torchrun --nnodes 2 --node_rank $SLURM_PROCID --rdzv_backend c10d --rdzv_endpoint $HOST:29500 train.py
