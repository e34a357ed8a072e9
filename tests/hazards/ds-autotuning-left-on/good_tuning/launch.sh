#!/bin/bash
deepspeed --autotuning tune --num_gpus 8 train.py --deepspeed_config ds_config.json
