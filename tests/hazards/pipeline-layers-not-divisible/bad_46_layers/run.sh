torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 --num-layers 46 --seq-length 4096
