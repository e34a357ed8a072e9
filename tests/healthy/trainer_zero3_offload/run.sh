#!/usr/bin/env bash
# 13B on one node with 8 x 40 GB: parameters and optimizer on the host.
set -e
GPUS_PER_NODE=8
MASTER_PORT=${MASTER_PORT:-29600}

DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE \
    --nnodes 1 \
    --master_port $MASTER_PORT
"

export OMP_NUM_THREADS=8
torchrun $DISTRIBUTED_ARGS finetune.py \
    --deepspeed ds_zero3_offload.json \
    --model_name_or_path meta-llama/Llama-2-13b-hf \
    --data_path data/instructions.json \
    --bf16 \
    --output_dir out/llama-13b \
    --num_train_epochs 3 \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 8 \
    --eval_strategy no \
    --save_strategy epoch \
    --learning_rate 2e-5 \
    --lr_scheduler_type cosine \
    --warmup_ratio 0.03 \
    --logging_steps 1 \
    --tf32 True \
    --gradient_checkpointing \
    --model_max_length 2048
