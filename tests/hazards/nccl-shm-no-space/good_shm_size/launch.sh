#!/bin/bash
docker run --rm --gpus all --shm-size=16g -v /data/sft:/work -w /work pytorch/pytorch:2.4.0-cuda12.1-cudnn9-devel \
    torchrun --nproc_per_node 8 train.py --output_dir out
