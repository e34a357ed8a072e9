#!/usr/bin/env bash
# Qwen2.5-7B-Instruct, GRPO with LoRA, ZeRO-3 on 8 x H100; vLLM has 80 % of each GPU.
# 训练完第一步，把权重同步到 vLLM 时 OOM；不用 LoRA 的同一脚本却没问题。
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1

ARGS=(
  --model model
  --data data/train.jsonl
  --output_dir output/grpo
  --bf16 true
  --learning_rate 1e-5
  --beta 0.0
  --per_device_train_batch_size 4
  --gradient_accumulation_steps 2
  --num_generations 8
  --max_completion_length 512
  --gradient_checkpointing true
  --num_train_epochs 1
  --logging_steps 1
  --report_to none
  --use_vllm true
  --vllm_mode colocate
  --vllm_max_model_length 1024
  --vllm_gpu_memory_utilization 0.8
)

accelerate launch --config_file accelerate_config.yaml grpo.py "${ARGS[@]}"
