#!/bin/bash
torchrun --standalone --nnodes=1 --nproc_per_node=4 main.py --data /data/imagenet --epochs 90
