#!/bin/bash
export CUDA_VISIBLE_DEVICES=4,5,
deepspeed --master_port 29511 train.py --deepspeed ds_config.json
