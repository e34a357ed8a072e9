#!/bin/bash
deepspeed --num_gpus 8 train.py --output_dir out --per_device_train_batch_size 1 --bf16 True --deepspeed ds_config.json
