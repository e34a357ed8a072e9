#!/bin/bash
deepspeed train.py
