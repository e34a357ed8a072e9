accelerate launch --config_file accelerate.yaml train.py \
    --gradient_accumulation_steps 8 \
    --bf16 \
    --output_dir out
