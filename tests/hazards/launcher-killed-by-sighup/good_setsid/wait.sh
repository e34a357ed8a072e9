torchrun --nproc_per_node 4 a.py &
wait
