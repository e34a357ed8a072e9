#!/bin/bash
export CUDA_VISIBLE_DEVICES=0,1,2,3
llamafactory-cli train configs/llama_lora_dpo.yaml
