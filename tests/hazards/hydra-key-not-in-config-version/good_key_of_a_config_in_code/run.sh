python train.py noise_lib=loglinear
