CUDA_VISIBLE_DEVICES=0 python train.py --deepspeed ds_z3.json --bf16
