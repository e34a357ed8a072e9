#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
srun python train.py
