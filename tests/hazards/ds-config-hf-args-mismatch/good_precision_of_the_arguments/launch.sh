accelerate launch --config_file accelerate.yaml train.py --gradient_accumulation_steps 8 --bf16 True --output_dir out
