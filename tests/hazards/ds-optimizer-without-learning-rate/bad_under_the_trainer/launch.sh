#!/bin/bash
deepspeed --num_gpus 8 train.py --deepspeed ds_config.json --learning_rate 2e-5 --output_dir out
