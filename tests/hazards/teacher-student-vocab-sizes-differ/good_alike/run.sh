#!/bin/bash
NPROC_PER_NODE=2 swift rlhf --rlhf_type gkd --model student --teacher_model teacher --dataset data.jsonl
