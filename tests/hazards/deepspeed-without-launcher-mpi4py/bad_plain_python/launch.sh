#!/bin/bash
CUDA_VISIBLE_DEVICES=0 python train.py --deepspeed_config ds_config.json
