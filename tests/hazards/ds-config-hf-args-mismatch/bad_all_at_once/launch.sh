deepspeed --num_gpus 8 train.py \
    --deepspeed ds_config.json \
    --output_dir out \
    --per_device_train_batch_size 4 \
    --gradient_accumulation_steps 8 \
    --learning_rate 2e-5 \
    --bf16 True
