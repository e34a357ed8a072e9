CUDA_VISIBLE_DEVICES=0,1,2 swift sft --model_type a-vl-chat --dataset captions
