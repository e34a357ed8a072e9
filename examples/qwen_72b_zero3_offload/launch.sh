#!/bin/bash
# Qwen2-72B-Instruct, all parameters, one node of eight 80 GB GPUs.
# 72B 全参数微调，单机八卡；显存不够，参数和优化器都卸载到内存。
set -e
cd "$(dirname "$0")"

export CUDA_DEVICE_MAX_CONNECTIONS=1
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True

GPUS_PER_NODE=${GPUS_PER_NODE:-8}
MASTER_PORT=${MASTER_PORT:-6001}

MODEL="model"                # Qwen/Qwen2-72B-Instruct
DATA="data/train.jsonl"
DS_CONFIG_PATH="ds_config.json"

usage() {
    echo "Usage: bash launch.sh [-m MODEL_PATH] [-d DATA_PATH] [--deepspeed DS_CONFIG_PATH]"
}

while [[ "$1" != "" ]]; do
    case $1 in
        -m | --model ) shift; MODEL=$1 ;;
        -d | --data ) shift; DATA=$1 ;;
        --deepspeed ) shift; DS_CONFIG_PATH=$1 ;;
        -h | --help ) usage; exit 0 ;;
        * ) echo "Unknown argument ${1}"; usage; exit 1 ;;
    esac
    shift
done

deepspeed --num_gpus "$GPUS_PER_NODE" --master_port "$MASTER_PORT" finetune.py \
    --model_name_or_path "$MODEL" \
    --data_path "$DATA" \
    --bf16 True \
    --output_dir output_qwen_72b \
    --num_train_epochs 3 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 8 \
    --save_strategy "steps" \
    --save_steps 200 \
    --save_total_limit 2 \
    --learning_rate 1e-5 \
    --weight_decay 0.1 \
    --adam_beta2 0.95 \
    --max_grad_norm 1.0 \
    --warmup_steps 10 \
    --lr_scheduler_type "cosine" \
    --logging_steps 1 \
    --report_to "none" \
    --model_max_length 4096 \
    --gradient_checkpointing True \
    --deepspeed "$DS_CONFIG_PATH"
