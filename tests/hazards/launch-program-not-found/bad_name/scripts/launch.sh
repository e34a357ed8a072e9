#!/bin/bash
cd "$(dirname "$0")/.."
torchrun --nproc_per_node 8 finetune_lora.py --bf16 true
