torchrun --nnodes 2 --node_rank $NODE_RANK --nproc_per_node 8 --master_addr head --master_port 29500 train.py
