#!/bin/bash
torchrun --nproc_per_node 2 --master_port 29511 train.py --seed 1 &
torchrun --nproc_per_node 2 --master_port 29512 train.py --seed 2 &
wait
torchrun --standalone --nproc_per_node 2 train.py &
torchrun --standalone --nproc_per_node 2 train.py &
wait
