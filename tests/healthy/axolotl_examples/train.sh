#!/bin/bash
axolotl preprocess llama3_fft.yml
axolotl train llama3_fft.yml
