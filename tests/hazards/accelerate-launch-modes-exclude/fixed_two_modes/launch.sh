accelerate launch \
    --use_deepspeed \
    --zero_stage 2 \
    --num_processes 8 \
    train.py
