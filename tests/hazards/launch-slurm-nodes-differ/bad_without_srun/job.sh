#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
torchrun --nnodes 2 --node_rank 0 --nproc_per_node 8 --master_addr $MASTER_ADDR train.py
