#!/bin/bash
export HF_HOME=/data/hf
export NCCL_SOCKET_IFNAME=bond0
export LD_LIBRARY_PATH=/usr/local/cuda/lib64:$LD_LIBRARY_PATH
deepspeed --hostfile hostfile train.py --deepspeed ds_config.json
