deepspeed --include localhost:2,3 train.py --deepspeed ds_config.json
deepspeed --num_gpus 2 train.py --deepspeed ds_config.json --include extra
