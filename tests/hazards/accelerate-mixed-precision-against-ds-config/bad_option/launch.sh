accelerate launch --config_file accelerate.yaml --mixed_precision bf16 train.py
