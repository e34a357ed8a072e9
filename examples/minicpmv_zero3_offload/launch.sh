#!/bin/bash
# MiniCPM-V, all parameters, ZeRO-3 with everything offloaded.
# 显存紧张，优化器和参数都放到内存里。
cd "$(dirname "$0")"

GPUS_PER_NODE=8
NNODES=1
NODE_RANK=0
MASTER_ADDR=localhost
MASTER_PORT=6001

MODEL="model"    # openbmb/MiniCPM-V-4.6
DATA="data/train.jsonl"
MODEL_MAX_Length=2048    # 多图时需要更长

DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE \
    --nnodes $NNODES \
    --node_rank $NODE_RANK \
    --master_addr $MASTER_ADDR \
    --master_port $MASTER_PORT
"
torchrun $DISTRIBUTED_ARGS finetune.py \
    --model_name_or_path $MODEL \
    --data_path $DATA \
    --remove_unused_columns false \
    --label_names "labels" \
    --bf16 true \
    --fp16 false \
    --do_train \
    --tune_vision true \
    --tune_llm true \
    --model_max_length $MODEL_MAX_Length \
    --num_train_epochs 3 \
    --output_dir output/output_minicpmv \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 1 \
    --save_strategy "steps" \
    --save_steps 1000 \
    --save_total_limit 10 \
    --learning_rate 1e-6 \
    --weight_decay 0.1 \
    --adam_beta2 0.95 \
    --max_grad_norm 1.0 \
    --warmup_steps 1 \
    --lr_scheduler_type "cosine" \
    --logging_steps 1 \
    --gradient_checkpointing true \
    --deepspeed ds_config.json \
    --report_to "none"
