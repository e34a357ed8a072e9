torchrun --nproc_per_node 8 train.py --model Qwen/Qwen2.5-VL-7B-Instruct --deepspeed zero3.json
