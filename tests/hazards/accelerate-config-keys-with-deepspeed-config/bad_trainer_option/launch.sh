accelerate launch --config_file accelerate.yaml train.py --deepspeed ds_config.json --output_dir out
