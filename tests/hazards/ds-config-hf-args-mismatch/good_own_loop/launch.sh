deepspeed --num_gpus 8 train.py --deepspeed_config ds_config.json --gradient_accumulation_steps 8
