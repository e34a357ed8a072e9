#!/bin/bash
deepspeed --num_gpus 8 train.py --output_dir out --per_device_train_batch_size 2 --bf16 True --report_to tensorboard wandb --deepspeed ds_config.json
