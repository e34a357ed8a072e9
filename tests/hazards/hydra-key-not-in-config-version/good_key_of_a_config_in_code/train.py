import hydra
from hydra.core.config_store import ConfigStore

ConfigStore.instance().store(name="base", node={"noise_lib": "x"})


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    print(cfg)


if __name__ == "__main__":
    main()
