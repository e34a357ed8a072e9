#!/bin/bash
export CUDA_VISIBLE_DEVICES=4,5,6,7
export WANDB_PROJECT=notes
nohup torchrun --nproc_per_node=4 --master_port=29501 train.py --deepspeed ds_zero2.json --bf16 \
    --model_name_or_path Qwen/Qwen2.5-1.5B --output_dir out > log.txt 2>&1 &
