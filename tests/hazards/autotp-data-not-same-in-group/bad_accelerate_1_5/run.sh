deepspeed --num_gpus 8 train.py --output_dir out --deepspeed ds.json --per_device_train_batch_size 1 --bf16 True
