deepspeed --hostfile hostfile --include work1:2,3 train.py --deepspeed ds_config.json
