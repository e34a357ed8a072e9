#!/bin/bash
# cd examples/translation first
CODE=data/bpe.codes
python dedupe.py train.txt > train.unique
DATA=data
torchrun --nproc_per_node 4 train.py --data $DATA
