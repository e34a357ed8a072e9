#!/bin/bash
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
accelerate launch --multi_gpu --num_machines 2 --num_processes 16 --machine_rank $RANK --main_process_ip $HOST \
    --main_process_port 29500 train.py
accelerate launch --multi_gpu --num_machines 2 --num_processes 4 --machine_rank $RANK --main_process_ip $HOST \
    --main_process_port 29500 train.py
