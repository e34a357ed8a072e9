#!/bin/bash
deepspeed --num_gpus 8 train.py --deepspeed ds_config.json
accelerate launch --num_processes 8 -m trainer.main
torchrun --nproc_per_node 8 \
    --master_port 29501 \
    train.py
