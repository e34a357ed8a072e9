CUDA_VISIBLE_DEVICES=0,1,2,3 deepspeed --num_gpus 4 train.py --deepspeed ds_config.json
CUDA_VISIBLE_DEVICES=4,5 deepspeed train.py --deepspeed ds_config.json
CUDA_VISIBLE_DEVICES=4,5 torchrun --nproc_per_node 2 train.py --deepspeed ds_config.json
