#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1,2,3 python finetune.py --output_dir out --fp16 true
