import argparse
import os

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="data")
arguments = parser.parse_args()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
