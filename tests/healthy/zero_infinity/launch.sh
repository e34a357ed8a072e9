#!/bin/bash
# 65B on 16 GPUs of one node: everything on the local NVMe drives.
export CUDA_DEVICE_MAX_CONNECTIONS=1
deepspeed --num_gpus=16 pretrain.py \
  --config ds_infinity.json \
  --layers 80 --width 8192 --heads 64 \
  --sequence 2048 \
  --steps 20000
