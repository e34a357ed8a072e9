#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun bash -c 'torchrun --nnodes 2 --node_rank $SLURM_NODEID --nproc_per_node 8 --master_addr $MASTER_ADDR train.py'
