#!/bin/bash
export HF_HOME=/data/hf
export NCCL_SOCKET_IFNAME=bond0
deepspeed --hostfile hostfile train.py --deepspeed ds_config.json
