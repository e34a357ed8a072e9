deepspeed --num_gpus 2 train.py --deepspeed ds_config.json --output_dir out
