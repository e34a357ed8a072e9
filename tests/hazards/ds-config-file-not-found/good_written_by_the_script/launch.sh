cat > ds.json <<EOF
{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}
EOF
torchrun --nproc_per_node 8 train.py --deepspeed ds.json --output_dir out
