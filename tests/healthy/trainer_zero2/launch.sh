#!/bin/bash
set -euo pipefail
cd "$(dirname "$0")"

export TOKENIZERS_PARALLELISM=false
export NCCL_DEBUG=WARN
MODEL=${MODEL:-Qwen/Qwen2.5-1.5B}
OUT=${OUT:-runs/qwen-sft}

deepspeed --num_gpus 8 --master_port 29511 train.py \
    --deepspeed configs/ds_zero2.json \
    --model_name_or_path "$MODEL" \
    --train_file data/train.jsonl \
    --validation_file data/dev.jsonl \
    --output_dir "$OUT" \
    --bf16 True \
    --num_train_epochs 2 \
    --per_device_train_batch_size 4 \
    --per_device_eval_batch_size 4 \
    --gradient_accumulation_steps 4 \
    --learning_rate 1e-5 \
    --weight_decay 0.01 \
    --lr_scheduler_type cosine \
    --warmup_steps 100 \
    --max_grad_norm 1.0 \
    --eval_strategy steps \
    --eval_steps 200 \
    --save_strategy steps \
    --save_steps 200 \
    --save_total_limit 3 \
    --load_best_model_at_end True \
    --logging_steps 10 \
    --gradient_checkpointing True \
    --report_to tensorboard
