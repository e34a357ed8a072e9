#!/bin/bash
accelerate launch --num_processes 4 grpo.py --use_vllm True --output_dir out
