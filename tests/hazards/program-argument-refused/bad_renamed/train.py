import argparse

import torch


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--precision", choices=["bf16", "fp16"], default="bf16")
    parser.add_argument("--output-dir", required=True)
    parser.add_argument("--compile", action="store_true")
    return parser


def main():
    arguments = options().parse_args()
    print(torch.__version__, arguments)


if __name__ == "__main__":
    main()
