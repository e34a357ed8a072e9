import argparse
import sys

sys.argv = [one for one in sys.argv if not one.startswith("--learning_rate") and one != "1e-4"]
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
print(parser.parse_args())
