#!/bin/bash
NUM_GPUS=4
EXPERTS=8

deepspeed --num_gpus=${NUM_GPUS} \
          --bind_cores_to_rank \
        train_moe.py \
        --log-interval 100 \
        --deepspeed \
        --deepspeed_config ds_moe.json \
        --experts ${EXPERTS} \
        --ep-size ${NUM_GPUS}
