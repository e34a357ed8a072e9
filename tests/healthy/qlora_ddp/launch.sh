#!/bin/bash
set -e
NUM_GPUS=${NUM_GPUS:-4}
torchrun --standalone --nproc_per_node "$NUM_GPUS" sft_qlora.py --config config.yaml
