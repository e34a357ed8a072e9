CUDA_VISIBLE_DEVICES=0 python train_sft.py --deepspeed ds_z2.json
