#!/bin/bash
python -m torch.distributed.launch --nproc_per_node=8 --use_env train.py --bf16 true
