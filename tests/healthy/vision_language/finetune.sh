#!/bin/bash
set -x

GPUS=${GPUS:-8}
BATCH_SIZE=${BATCH_SIZE:-128}
PER_DEVICE_BATCH_SIZE=${PER_DEVICE_BATCH_SIZE:-4}
GRADIENT_ACC=$((BATCH_SIZE / PER_DEVICE_BATCH_SIZE / GPUS))

export PYTHONPATH="${PYTHONPATH}:$(pwd)"
OUTPUT_DIR=work_dirs/vl_finetune
mkdir -p "$OUTPUT_DIR"

torchrun \
  --nnodes=1 \
  --node_rank=0 \
  --master_addr=127.0.0.1 \
  --master_port=34229 \
  --nproc_per_node=${GPUS} \
  vl/train.py \
  --model_name_or_path Qwen/Qwen2-VL-7B-Instruct \
  --data_path data/vl.jsonl \
  --output_dir ${OUTPUT_DIR} \
  --bf16 True \
  --num_train_epochs 1 \
  --per_device_train_batch_size ${PER_DEVICE_BATCH_SIZE} \
  --gradient_accumulation_steps ${GRADIENT_ACC} \
  --save_strategy steps \
  --save_steps 200 \
  --save_total_limit 1 \
  --learning_rate 4e-5 \
  --weight_decay 0.05 \
  --warmup_ratio 0.03 \
  --lr_scheduler_type cosine \
  --logging_steps 1 \
  --gradient_checkpointing True \
  --remove_unused_columns False \
  --dataloader_num_workers 4 \
  --deepspeed zero_stage3.json \
  --report_to tensorboard \
  2>&1 | tee -a "${OUTPUT_DIR}/log.txt"
