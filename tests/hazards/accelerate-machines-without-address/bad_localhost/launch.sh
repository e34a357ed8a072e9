#!/bin/bash
accelerate launch --config_file accelerate.yaml --machine_rank 1 train.py
