#!/bin/bash
accelerate launch --config_file zero2.yaml grpo.py
