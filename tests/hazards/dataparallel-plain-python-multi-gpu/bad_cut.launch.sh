CUDA_VISIBLE_DEVICES=0,1 python train_sft.py --quantization_bit 8
