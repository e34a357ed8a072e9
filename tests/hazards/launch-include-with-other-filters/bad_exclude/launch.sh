deepspeed --hostfile hosts --include worker-0 --exclude worker-1:0 train.py --deepspeed ds_config.json
