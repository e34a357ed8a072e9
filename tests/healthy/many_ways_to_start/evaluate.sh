#!/bin/bash
CUDA_VISIBLE_DEVICES=0 python evaluate.py --checkpoint out/checkpoint-100
CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc_per_node 4 -m lm_eval --model hf --tasks mmlu
accelerate launch -m lm_eval --model hf --model_args pretrained=out --tasks lambada_openai --batch_size 16
vllm serve out --tensor-parallel-size 4
