#!/bin/bash
python zero_to_fp32.py checkpoint-500 merged/pytorch_model.bin
