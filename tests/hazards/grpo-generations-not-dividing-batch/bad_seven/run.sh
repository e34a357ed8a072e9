#!/bin/bash
accelerate launch --num_processes 7 -m trl.scripts.grpo --model_name_or_path Qwen/Qwen3-4B --per_device_train_batch_size 1 --gradient_accumulation_steps 4 --num_generations 8
