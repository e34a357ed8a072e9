import argparse


def check(value):
    return value > 0


def command_line():
    parser = argparse.ArgumentParser()
    parser.add_argument("--value", type=float)
    print(check(parser.parse_args().value))


if __name__ == "__main__":
    command_line()
