#!/bin/bash
GPUS=0,1,2,3
deepspeed --include localhost:0,1,2,3 train.py --deepspeed ds_config.json
