from gonogo.hazards.config_rule import ConfigHazard, Setting, Words, true
from gonogo.hazards.rule import Text


class DsMonitorPackageMissing(ConfigHazard):
    """tensorboard, wandb or comet is enabled, and its package is not there.
    ## What happens
    "If you want to use tensorboard logging, please `pip install tensorboard`", then ModuleNotFoundError, in
    deepspeed.initialize.
    ## Why
    DeepSpeed writes to the monitor itself, apart from what the Trainer reports to.
    ## Example
    ```sh
    # "tensorboard": {"enabled": true} in ds_config.json
    pip install deepspeed                # wrong: tensorboard is not there
    pip install deepspeed tensorboard    # right
    ```
    ## Cure
    Install the package, or switch the monitor off.
    ## When it is safe
    csv_monitor needs no package.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/monitor/utils.py: the check of each package
    - https://www.deepspeed.ai/docs/config-json/: the monitors
    """

    name = "ds-monitor-package-missing"
    title = Text("The package of a monitor that the config switches on is not installed", "配置开启的监控缺少对应的包")

    keys = ("tensorboard.enabled", "wandb.enabled", "comet.enabled")
    wrong = true
    cause = Text(
        "{section} is enabled, and the package {package} is not installed: DeepSpeed stops when it starts the monitor.",
        "开启了 {section}，但没有安装 {package}：DeepSpeed 启动该监控时会停止。",
    )
    cure = (
        Text("pip install {package}", "执行 pip install {package}"),
        Text('Or set "enabled": false', "或设置 “enabled”: false"),
    )

    def around(self, at: Setting) -> Words | None:
        """The package, where a complete listing has none of it."""
        package = "comet-ml" if at.keys[0] == "comet" else at.keys[0]
        return {"package": package} if at.run.environment.known_absent(package) else None
