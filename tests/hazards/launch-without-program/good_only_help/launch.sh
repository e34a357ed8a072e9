#!/bin/bash
deepspeed --help
torchrun -h
accelerate launch --help
