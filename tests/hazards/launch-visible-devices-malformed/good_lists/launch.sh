CUDA_VISIBLE_DEVICES="0, 1, 2" torchrun --nproc_per_node 3 train.py
CUDA_VISIBLE_DEVICES= python prepare.py
CUDA_VISIBLE_DEVICES=GPU-4f2d8a1e,GPU-9b7c3d52 torchrun --nproc_per_node 2 train.py
