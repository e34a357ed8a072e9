#!/bin/bash
# SLAM-Omni on Qwen2.5-7B, ZeRO-3, eight cards.
# 去掉 dummy loss：适配器每一步都参与前向，不需要它。
cd "$(dirname "$0")"

llm_path=${LLM_PATH:-model}
code_layer=3            # speech codes in a group
total_audio_vocabsize=4160
exp_name="slam-omni-group${code_layer}"
output_dir=output/$exp_name

if [ "$exp_name" = "debug" ]; then
    gpus=0
else
    gpus=0,1,2,3,4,5,6,7
fi

deepspeed --include "localhost:$gpus" --master_port 29533 train_fixed.py \
    --deepspeed --deepspeed_config ds_config.json \
    --llm_path "$llm_path" \
    --data_path data/train.jsonl \
    --output_dir "$output_dir" \
    --code_layer $code_layer \
    --audio_vocab_size $total_audio_vocabsize \
    --max_length 2048 \
    --epochs 1
