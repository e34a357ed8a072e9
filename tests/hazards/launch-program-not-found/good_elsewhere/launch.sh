#!/bin/bash
torchrun --nproc_per_node 8 src/train_bash.py
torchrun --nproc_per_node 8 $SCRIPT
torchrun --nproc_per_node 8 train.py
