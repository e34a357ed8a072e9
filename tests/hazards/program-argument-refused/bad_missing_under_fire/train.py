import argparse

import fire
import torch


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--adapter", choices=["lora", "prefix"], required=True)
    parser.add_argument("--epochs", type=int, default=3)
    return parser.parse_args()


def main(base_model: str = ""):
    arguments = options()
    print(torch.__version__, base_model, arguments)


if __name__ == "__main__":
    fire.Fire(main)
