#!/bin/bash
accelerate launch --multi_gpu --num_machines 4 --num_processes 2 --machine_rank $RANK --main_process_ip $HOST \
    --main_process_port 29500 train.py
