import hydra


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    print(cfg)


if __name__ == "__main__":
    main()
