#!/bin/bash
deepspeed --num_gpus 8 train.py --model_name_or_path model --output_dir out --deepspeed ds_config.json
