#!/bin/bash
accelerate launch --config_file zero3.yaml --num_machines 2 --num_processes 16 --machine_rank $RANK \
    --main_process_ip $HOST --main_process_port 29500 train.py
