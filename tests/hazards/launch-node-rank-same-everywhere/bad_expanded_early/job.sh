#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes 2 --node_rank $SLURM_NODEID --nproc_per_node 8 \
    --master_addr $MASTER_ADDR --master_port 29500 train.py --deepspeed ds_config.json
