accelerate launch --config_file accelerate.yaml train.py --output_dir out
