#!/bin/bash
deepspeed --num_gpus 8 train.py --output_dir out --per_device_train_batch_size 1 --bf16 True --eval_strategy steps --eval_steps 100 --deepspeed ds_config.json
