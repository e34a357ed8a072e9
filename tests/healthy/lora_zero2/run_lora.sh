#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1

GPUS_PER_NODE=${GPUS_PER_NODE:-4}
MODEL="Qwen/Qwen2.5-7B"
DATA="data/train.json"

while [[ $# -gt 0 ]]; do
    case $1 in
        -m | --model)
            MODEL=$2
            shift 2
            ;;
        -d | --data)
            DATA=$2
            shift 2
            ;;
        *)
            echo "unknown option $1" >&2
            exit 1
            ;;
    esac
done

torchrun --nproc_per_node "$GPUS_PER_NODE" --nnodes 1 --master_port 6001 finetune.py \
    --model_name_or_path "$MODEL" \
    --data_path "$DATA" \
    --bf16 True \
    --output_dir output_lora \
    --num_train_epochs 5 \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 8 \
    --save_strategy steps \
    --save_steps 500 \
    --save_total_limit 5 \
    --learning_rate 3e-4 \
    --weight_decay 0.1 \
    --adam_beta2 0.95 \
    --warmup_ratio 0.01 \
    --lr_scheduler_type cosine \
    --logging_steps 1 \
    --report_to none \
    --gradient_checkpointing True \
    --use_lora True \
    --deepspeed ds_config_zero2.json
