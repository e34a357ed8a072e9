#!/bin/bash
export FORCE_TORCHRUN=1
CUDA_VISIBLE_DEVICES=0 llamafactory-cli train sft.yaml
