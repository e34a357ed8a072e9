#!/bin/bash
deepspeed --num_gpus 8 train.py --output_dir out --bf16 True --per_device_train_batch_size 1 --max_grad_norm 1.0 --deepspeed ds_config.json
