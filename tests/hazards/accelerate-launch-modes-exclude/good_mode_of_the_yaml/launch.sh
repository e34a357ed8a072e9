accelerate launch --config_file accelerate.yaml --zero_stage 3 train.py
