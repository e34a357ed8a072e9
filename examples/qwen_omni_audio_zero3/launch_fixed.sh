#!/bin/bash
# Qwen2.5-Omni-7B on audio questions, 4 x H100 80 GB.
# 只训练 thinker，不建 talker 和 token2wav，zero3 就可以跑。
set -euo pipefail
cd "$(dirname "$0")"

export ENABLE_AUDIO_OUTPUT=0

NPROC_PER_NODE=${NPROC_PER_NODE:-4}
DEEPSPEED=${DEEPSPEED:-zero3}    # was zero2

case "$DEEPSPEED" in
    zero2) DS_CONFIG=ds_config_zero2.json ;;
    zero3) DS_CONFIG=ds_config.json ;;
    *) echo "DEEPSPEED is zero2 or zero3, not $DEEPSPEED" >&2; exit 1 ;;
esac

torchrun --nproc_per_node "$NPROC_PER_NODE" --master_port "${MASTER_PORT:-29500}" train.py \
    --model_name_or_path model \
    --data_path data/train.jsonl \
    --output_dir output \
    --bf16 true \
    --num_train_epochs 1 \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 2 \
    --gradient_checkpointing true \
    --learning_rate 1e-5 \
    --warmup_steps 0.05 \
    --lr_scheduler_type cosine \
    --logging_steps 1 \
    --save_strategy no \
    --report_to none \
    --dataloader_num_workers 2 \
    --remove_unused_columns false \
    --deepspeed "$DS_CONFIG"
