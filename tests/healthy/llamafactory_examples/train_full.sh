#!/bin/bash
FORCE_TORCHRUN=1 llamafactory-cli train configs/qwen_full_sft.yaml
