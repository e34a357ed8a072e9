deepspeed --num_gpus 8 train.py --deepspeed ds_config.json --adafactor --output_dir out
