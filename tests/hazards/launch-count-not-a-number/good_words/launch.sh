#!/bin/bash
torchrun --nproc_per_node gpu --nnodes 1:4 --rdzv_backend c10d --rdzv_endpoint $HOST:29500 train.py
torchrun --nproc_per_node $GPUS train.py
deepspeed --num_gpus 4 train.py
CMD="accelerate launch --num_machines 2 --machine_rank \$SLURM_PROCID --main_process_ip $HOST train.py"
srun bash -c "$CMD"
