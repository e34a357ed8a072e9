deepspeed --num_gpus 8 train.py --deepspeed ds_config.json --optim paged_adamw_8bit --output_dir out
