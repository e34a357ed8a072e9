torchrun --nproc_per_node=8 train.py --deepspeed_config conf/ds_zero2.json
