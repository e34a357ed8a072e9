#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1 python finetune.py --output_dir out
