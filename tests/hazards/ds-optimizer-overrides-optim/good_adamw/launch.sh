deepspeed --num_gpus 8 train.py --deepspeed ds_config.json --optim adamw_torch --output_dir out
