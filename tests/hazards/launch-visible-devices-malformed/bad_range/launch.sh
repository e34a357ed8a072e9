CUDA_VISIBLE_DEVICES="0-3" torchrun --nproc_per_node 4 train.py
