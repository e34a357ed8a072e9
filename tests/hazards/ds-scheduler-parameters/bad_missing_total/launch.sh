#!/bin/bash
deepspeed --num_gpus 8 train.py --deepspeed ds_config.json --bf16 true --output_dir out
