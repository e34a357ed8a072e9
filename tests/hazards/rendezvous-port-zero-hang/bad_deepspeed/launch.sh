#!/bin/bash
deepspeed --num_gpus 8 --master_port 0 train.py --deepspeed ds_config.json
