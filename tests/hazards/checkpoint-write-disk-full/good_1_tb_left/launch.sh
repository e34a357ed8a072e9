#!/bin/bash
deepspeed --num_gpus 8 train.py --output_dir out --per_device_train_batch_size 2 --bf16 True --model_name_or_path Qwen/Qwen2.5-14B --deepspeed ds_config.json
