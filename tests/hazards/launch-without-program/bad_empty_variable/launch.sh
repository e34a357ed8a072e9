#!/bin/bash
TRAINER=
deepspeed --num_gpus 8 $TRAINER
