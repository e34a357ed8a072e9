#!/bin/bash
torchrun --nproc_per_node 8 $SCRIPT
deepspeed --num_gpus 8 "$@"
accelerate launch $ACCELERATE_ARGS
