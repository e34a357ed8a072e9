#!/bin/bash
for seed in 1 2 3; do
  for lr in 1e-5 3e-5; do
    deepspeed --num_gpus 4 --master_port $((29500 + seed)) train.py --deepspeed ds_zero2.json --seed $seed --learning_rate $lr --bf16 --output_dir out/$seed-$lr --model_name_or_path Qwen/Qwen2.5-1.5B || echo failed
  done
done
