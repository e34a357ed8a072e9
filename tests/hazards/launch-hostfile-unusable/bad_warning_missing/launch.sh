deepspeed --hostfile config/hostfile train.py --deepspeed ds_config.json
