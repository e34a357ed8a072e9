#!/bin/bash
# NODE_RANK comes from the cluster's job
FORCE_TORCHRUN=1 NNODES=2 NODE_RANK=${NODE_RANK:-0} MASTER_ADDR=192.168.12.1 MASTER_PORT=29500 \
    llamafactory-cli train configs/qwen_vl_full.yaml
