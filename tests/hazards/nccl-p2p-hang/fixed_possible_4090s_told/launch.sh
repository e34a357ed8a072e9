#!/bin/bash
export NCCL_P2P_DISABLE=1
deepspeed --num_gpus 4 train.py --output_dir out --per_device_train_batch_size 2 --bf16 True --deepspeed ds_config.json
