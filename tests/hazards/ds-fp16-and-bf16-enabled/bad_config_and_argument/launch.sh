deepspeed --num_gpus 2 train.py --deepspeed ds_config.json --bf16 --output_dir out
