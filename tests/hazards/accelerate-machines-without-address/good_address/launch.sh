#!/bin/bash
accelerate launch --config_file accelerate.yaml --machine_rank $NODE_RANK --main_process_ip $HOST train.py
accelerate launch --num_machines 1 --num_processes 8 train.py
