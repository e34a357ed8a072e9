deepspeed --num_gpus 8 train.py --deepspeed ds_config.json --optim adafactor --output_dir out
