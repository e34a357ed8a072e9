CUDA_VISIBLE_DEVICES=0 python train.py --deepspeed ds_config.json --output_dir out
