accelerate launch --num_processes 2 --multi_gpu qlora.py
