#!/bin/bash
torchrun --nproc_per_node 6 train.py --deepspeed ds_config.json
