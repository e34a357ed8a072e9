export RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=29501
python train.py --deepspeed ds_config.json --output_dir out
