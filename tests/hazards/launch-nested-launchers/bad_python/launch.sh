#!/bin/bash
deepspeed --num_gpus 8 python train.py --deepspeed ds_config.json
