import fire

from tool import check


def main(epochs, learning_rate):
    print(epochs, learning_rate, check)


if __name__ == "__main__":
    fire.Fire(main)
