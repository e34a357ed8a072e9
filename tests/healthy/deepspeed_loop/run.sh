#!/bin/bash
DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$DIR"

NUM_GPUS=${1:-4}
EPOCHS=${2:-10}

mkdir -p logs
deepspeed --num_nodes 1 --num_gpus "$NUM_GPUS" pretrain.py \
    --deepspeed --deepspeed_config ds_config.json \
    --epochs "$EPOCHS" \
    --data-dir /data/tokens \
    --save-dir checkpoints 2>&1 | tee logs/pretrain.log
