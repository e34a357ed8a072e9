#!/bin/bash
setsid torchrun --nproc_per_node 8 train.py > train.log 2>&1 < /dev/null &
