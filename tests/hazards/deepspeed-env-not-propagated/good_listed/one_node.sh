export HF_HOME=/data/hf
deepspeed --num_gpus 8 train.py
