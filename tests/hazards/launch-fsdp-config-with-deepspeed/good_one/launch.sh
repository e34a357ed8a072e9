#!/bin/bash
accelerate launch --config_file fsdp.yaml train.py --bf16 true
accelerate launch --multi_gpu --config_file fsdp.yaml train.py --deepspeed ds_config.json
