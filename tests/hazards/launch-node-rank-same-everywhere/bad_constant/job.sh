#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
srun accelerate launch --num_machines 2 --num_processes 16 --machine_rank 0 --main_process_ip 10.0.0.4 \
    --main_process_port 29500 --multi_gpu train.py
