#!/bin/bash
trl grpo --num_processes 4 --model_name_or_path Qwen/Qwen3-4B --dataset_name trl-lib/tldr --per_device_train_batch_size 2 --gradient_accumulation_steps 4
