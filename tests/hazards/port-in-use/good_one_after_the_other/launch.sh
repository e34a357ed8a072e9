#!/bin/bash
torchrun --nproc_per_node 2 train.py --seed 1 > seed1.log 2>&1
torchrun --nproc_per_node 2 train.py --seed 2 > seed2.log 2>&1
