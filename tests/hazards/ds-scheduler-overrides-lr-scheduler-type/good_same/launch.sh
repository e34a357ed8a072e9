deepspeed --num_gpus 8 train.py --deepspeed ds_config.json --lr_scheduler_type constant_with_warmup --warmup_steps 100 --output_dir out
