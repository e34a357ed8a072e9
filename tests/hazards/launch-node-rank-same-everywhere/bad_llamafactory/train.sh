#!/bin/bash
FORCE_TORCHRUN=1 NNODES=2 RANK=$RANK MASTER_ADDR=10.0.0.4 llamafactory-cli train sft.yaml
