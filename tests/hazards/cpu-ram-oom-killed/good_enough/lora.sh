#!/bin/bash
#SBATCH --mem=200G
torchrun --standalone --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen2.5-72B --use_lora true --deepspeed ds_config.json --output_dir out
