#!/bin/bash
deepspeed --num_gpus 1 train.py --deepspeed_config ds_config.json
RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=localhost MASTER_PORT=29500 python train.py
