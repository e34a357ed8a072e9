#!/bin/bash
cd output
python zero_to_fp32.py checkpoint-500 merged
