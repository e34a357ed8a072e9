#!/bin/bash
torchrun --nproc_per_node train.py --bf16 true
