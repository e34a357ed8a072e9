#!/bin/bash
torchrun --nproc_per_node 8 train.py --ddp_timeout 18000 --output_dir out
