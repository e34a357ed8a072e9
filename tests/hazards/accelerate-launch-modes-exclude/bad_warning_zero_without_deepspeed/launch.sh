accelerate launch --multi_gpu --zero_stage 3 --num_processes 8 train.py
