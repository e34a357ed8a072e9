#!/bin/bash
CUDA_VISIBLE_DEVICES=0 python finetune.py --output_dir out --bf16 true --deepspeed ds_config.json
