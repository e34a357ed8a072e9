python train.py noise.type=loglinear model.hidden_size=64 +extra=1 ++other=2 hydra.run.dir=out
