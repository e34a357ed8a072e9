#!/bin/bash
set -ex
DS_CONFIG=./tmp/deepspeed.json
TP=2
PP=1
ZERO_STAGE=1
GPUS_PER_NODE=8
MICRO_BATCH_SIZE=4
GLOBAL_BATCH_SIZE=64
mkdir -p tmp

cat <<EOT > $DS_CONFIG
{
  "train_batch_size": $GLOBAL_BATCH_SIZE,
  "train_micro_batch_size_per_gpu": $MICRO_BATCH_SIZE,
  "steps_per_print": 10,
  "zero_optimization": {
    "stage": $ZERO_STAGE
  },
  "bf16": {
    "enabled": true
  }
}
EOT

ds_args=" --deepspeed"
ds_args=" --deepspeed_config=$DS_CONFIG ${ds_args}"
ds_args=" --zero-stage=$ZERO_STAGE ${ds_args}"

torchrun --nproc_per_node $GPUS_PER_NODE --nnodes 1 --master_port 6000 \
    pretrain_gpt.py \
    --tensor-model-parallel-size $TP \
    --pipeline-model-parallel-size $PP \
    --micro-batch-size $MICRO_BATCH_SIZE \
    --global-batch-size $GLOBAL_BATCH_SIZE \
    --seq-length 2048 \
    --lr 3e-4 \
    --bf16 \
    $ds_args
