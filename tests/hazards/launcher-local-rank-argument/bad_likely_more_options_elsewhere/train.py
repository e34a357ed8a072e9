import argparse

import deepspeed
from megatrain import more_options


parser = argparse.ArgumentParser()
parser.add_argument("--data", default="data")
more_options(parser)
arguments = parser.parse_args()
deepspeed.init_distributed()
