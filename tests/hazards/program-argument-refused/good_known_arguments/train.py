import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
arguments, rest = parser.parse_known_args()
print(arguments, rest)
