#!/usr/bin/env bash
# Qwen1.5-7B-Chat, all parameters, ZeRO-2 on 8 x A100.
# 去掉了 device_map="auto"：每个进程一张卡，层不再摊到多张卡上。
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1

MODEL=${1:-model}
OUTPUT=output/$(basename "$MODEL")-sft

if [ -z "$TOKENIZERS_PARALLELISM" ]; then
  export TOKENIZERS_PARALLELISM=false
fi

ARGS=(
  --model_name_or_path "$MODEL"
  --data_path data/train.jsonl
  --eval_data_path data/eval.jsonl
  --output_dir "$OUTPUT"
  --bf16 True
  --num_train_epochs 3
  --per_device_train_batch_size 2
  --per_device_eval_batch_size 1
  --gradient_accumulation_steps 2
  --eval_strategy epoch
  --prediction_loss_only True
  --save_strategy epoch
  --save_total_limit 1
  --learning_rate 1e-5
  --weight_decay 0.1
  --warmup_steps 5
  --lr_scheduler_type cosine
  --logging_steps 1
  --report_to none
  --model_max_length 2048
  --gradient_checkpointing True
)

accelerate launch --config_file accelerate_config.yaml --gradient_accumulation_steps 2 finetune_fixed.py "${ARGS[@]}"
