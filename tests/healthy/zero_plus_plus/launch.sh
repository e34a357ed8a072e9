#!/bin/bash
#SBATCH --job-name=zeropp
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=96
#SBATCH --time=48:00:00
#SBATCH --output=logs/%x-%j.out

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=29500
export GPUS_PER_NODE=8

srun bash -c 'torchrun \
    --nnodes $SLURM_NNODES \
    --nproc_per_node $GPUS_PER_NODE \
    --node_rank $SLURM_NODEID \
    --master_addr $MASTER_ADDR \
    --master_port $MASTER_PORT \
    train.py --config ds_zeropp.json --model mistralai/Mistral-7B-v0.1'
