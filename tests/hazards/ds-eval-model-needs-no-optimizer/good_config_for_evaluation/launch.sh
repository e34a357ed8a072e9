deepspeed --num_gpus 4 distill.py --deepspeed_config ds_config.json
