#!/bin/bash
# “引号”与——破折号都在注释和引号里
torchrun --nproc_per_node 4 train.py \
    --system "你是一个助手——请用“中文”回答" \
    --data_path 数据/训练–集.jsonl
