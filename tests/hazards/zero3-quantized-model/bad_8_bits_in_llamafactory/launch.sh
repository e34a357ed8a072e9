#!/bin/bash
FORCE_TORCHRUN=1 llamafactory-cli train sft.yaml
