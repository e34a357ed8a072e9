import argparse

defaults = {"epochs": 3, "learning_rate": 1e-4}
parser = argparse.ArgumentParser()
for name, value in defaults.items():
    parser.add_argument(f"--{name}", type=type(value), default=value)
print(parser.parse_args())
