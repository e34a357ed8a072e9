python train.py --config-name other noise_lib=loglinear
