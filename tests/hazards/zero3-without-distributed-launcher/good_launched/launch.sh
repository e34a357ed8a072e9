#!/bin/bash
torchrun --nproc_per_node 1 finetune.py --output_dir out --bf16 true --deepspeed ds_config.json
python finetune.py --output_dir out --bf16 true --deepspeed zero2.json
