#!/bin/bash
trl sft --num_processes 3 --model_name_or_path Qwen/Qwen3-4B --dataset_name trl-lib/tldr --per_device_train_batch_size 1
