deepspeed --hostfile hostfile --master_port 29511 train.py --deepspeed ds_config.json
