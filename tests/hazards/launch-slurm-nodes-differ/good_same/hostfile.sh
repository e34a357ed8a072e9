#!/bin/bash
#SBATCH --nodes=2
deepspeed --hostfile $HOSTS train.py
