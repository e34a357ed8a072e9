import argparse

import deepspeed
import torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    args = parser.parse_args()
    model = torch.nn.Linear(8, 8)
    engine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
    engine.train()


if __name__ == "__main__":
    main()
