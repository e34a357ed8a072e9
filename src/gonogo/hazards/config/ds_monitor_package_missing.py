from gonogo.hazards.config._written import is_on, span_in
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Text


class DsMonitorPackageMissing(Hazard):
    """tensorboard, wandb or comet is enabled, and its package is not there.

    ## What happens
    "If you want to use tensorboard logging, please `pip install tensorboard`", then ModuleNotFoundError, in
    deepspeed.initialize.

    ## Why
    DeepSpeed writes to the monitor itself, apart from what the Trainer reports to.

    ## Cure
    Install the package, or switch the monitor off.

    ## When it is safe
    csv_monitor needs no package.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/monitor/utils.py: the check of each package
    - https://www.deepspeed.ai/docs/config-json/: the monitors
    """

    name = "ds-monitor-package-missing"
    title = Text(
        en="The package of a monitor that the config switches on is not installed", zh="配置开启的监控缺少对应的包"
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Each monitor that is on, where a complete listing has no such package."""
        for section, package in (("tensorboard", "tensorboard"), ("wandb", "wandb"), ("comet", "comet-ml")):
            if not is_on(config, section) or not run.environment.known_absent(package):
                continue
            yield self.finding(
                Text(
                    en="{section} is enabled, and the package {package} is not installed: DeepSpeed stops when it "
                    "starts the monitor.",
                    zh="开启了 {section}，但没有安装 {package}：DeepSpeed 启动该监控时会停止。",
                ).format(section=section, package=package),
                cure=(
                    Text("pip install {package}", "执行 pip install {package}").format(package=package),
                    Text('Or set "enabled": false', "或设置 “enabled”: false"),
                ),
                spans=(span_in(config, section, "enabled"),),
            )
