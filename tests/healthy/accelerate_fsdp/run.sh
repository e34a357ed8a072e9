#!/bin/bash
export FSDP_CPU_RAM_EFFICIENT_LOADING=1
accelerate launch --config_file fsdp.yaml sft.py \
  --model_name_or_path meta-llama/Llama-3.1-8B \
  --dataset_name HuggingFaceH4/ultrachat_200k \
  --per_device_train_batch_size 2 \
  --gradient_accumulation_steps 4 \
  --gradient_checkpointing False \
  --bf16 True \
  --learning_rate 2e-5 \
  --num_train_epochs 1 \
  --save_strategy epoch \
  --output_dir out/llama-fsdp
