deepspeed --num_gpus 8 train.py --deepspeed ds_config.json --output_dir out --save_strategy no
