import argparse

parser = argparse.ArgumentParser()
group = parser.add_argument_group("training")
group.add_argument("--bf16", action="store_true")
group.add_argument("--learning-rate", "--lr", dest="rate", type=float)
arguments = parser.parse_args()
print(arguments.rate)
