deepspeed --num_gpus 1 train.py --deepspeed ds_config.json --output_dir out
