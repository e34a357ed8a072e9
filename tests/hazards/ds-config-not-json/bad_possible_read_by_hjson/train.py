import argparse

import deepspeed

parser = argparse.ArgumentParser()
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()
engine, _, _, _ = deepspeed.initialize(args=args, model=build_model())
