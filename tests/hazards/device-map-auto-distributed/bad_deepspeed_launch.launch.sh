CUDA_VISIBLE_DEVICES=0,1,2 deepspeed tune.py --fp16
