CUDA_VISIBLE_DEVICES=0 swift pt --model_type qwen1half-7b --deepspeed default-zero3 --sft_type full
