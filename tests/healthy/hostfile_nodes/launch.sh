#!/bin/bash
cd "$(dirname "$0")"
deepspeed --hostfile hostfile --master_addr 10.1.0.1 --master_port 29700 run_clm.py \
    --deepspeed ds_zero1.json \
    --model_name_or_path EleutherAI/pythia-1.4b \
    --dataset_name wikitext --dataset_config_name wikitext-103-raw-v1 \
    --do_train --do_eval \
    --per_device_train_batch_size 4 \
    --gradient_accumulation_steps 2 \
    --bf16 \
    --learning_rate 1e-5 \
    --num_train_epochs 1 \
    --eval_strategy steps --eval_steps 500 \
    --save_steps 500 \
    --output_dir /shared/out/pythia
