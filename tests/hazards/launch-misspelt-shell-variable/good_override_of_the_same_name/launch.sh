#!/bin/bash
# KALDI_ROOT, N_GPUS_PER_NODE and TRAIN_FILES come from the cluster's profile
set -x
torchrun --nproc_per_node 8 train.py \
    kaldi_root=$KALDI_ROOT \
    data.train_files=$TRAIN_FILES \
    train_files=${TRAIN_FILES} \
    trainer.n_gpus_per_node=$N_GPUS_PER_NODE
