torchrun --nproc_per_node 2 train.py rows.txt --output out --epochs 4 --prec fp16 --compile
