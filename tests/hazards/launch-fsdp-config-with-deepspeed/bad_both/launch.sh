#!/bin/bash
accelerate launch --config_file fsdp.yaml train.py --deepspeed ds_config.json --bf16 true
