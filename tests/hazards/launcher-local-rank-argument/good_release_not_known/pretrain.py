import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="data")
parser.add_argument("--local_rank", type=int)
arguments = parser.parse_args()
torch.cuda.set_device(arguments.local_rank)
