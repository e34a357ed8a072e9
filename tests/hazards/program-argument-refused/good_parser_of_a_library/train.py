import argparse

from lightning_fabric_of_others import add_trainer_options

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
add_trainer_options(parser)
arguments = parser.parse_args()
print(arguments)
