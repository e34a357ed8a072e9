import argparse
import os

if os.path.exists("settings.json"):
    epochs = 3
else:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int)
    epochs = parser.parse_args().epochs
print(epochs)
