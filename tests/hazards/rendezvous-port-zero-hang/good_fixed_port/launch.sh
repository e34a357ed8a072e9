#!/bin/bash
deepspeed --num_gpus 8 --master_port 29501 train.py
torchrun --standalone --nproc_per_node 8 --master_port 0 train.py
