#!/bin/bash
torchrun --nproc_per_node 8 accelerate launch --config_file zero3.yaml train.py
