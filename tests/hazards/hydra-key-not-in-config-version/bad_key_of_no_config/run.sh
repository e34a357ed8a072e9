python train.py noise_lib=loglinear model=small ngpus=4
