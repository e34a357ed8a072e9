#!/bin/bash
export CUDA_VISIBLE_DEVICES=0
python train_qlora.py --base mistralai/Mistral-7B-v0.1 --data data/guanaco.jsonl --out out/guanaco
