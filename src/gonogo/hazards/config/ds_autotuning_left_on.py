"""ds-autotuning-left-on."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.run import Run
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.config._written import is_on, spot
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.hazard import Hazard


class DsAutotuningLeftOn(Hazard):
    """autotuning is enabled in a config for training.

    ## What happens
    The run ends by itself, without an error, after step 5 (or the profile's last step): exit status 0, and no model
    saved.

    ## Why
    With `autotuning.enabled` every run is a trial: the engine writes its metrics and calls exit().

    ## Cure
    Remove the section, or set `"enabled": false`.

    ## When it is safe
    Under `deepspeed --autotuning tune` or `run`, which starts trials.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py: `_autotuning_exit`
    - https://www.deepspeed.ai/tutorials/autotuning/: how autotuning is started
    """

    page_zh = """训练用的配置中开启了 autotuning。

    ## 现象
    运行在第 5 步（或 end_profile_step）之后自行结束，没有报错：退出码为 0，也没有保存模型。

    ## 原因
    `autotuning.enabled` 使每次运行都成为一次试验：引擎写出指标后调用 exit()。

    ## 解决办法
    去掉该段，或设置 `"enabled": false`。

    ## 何时安全
    在启动试验的 `deepspeed --autotuning tune` 或 `run` 之下。

    ## 来源
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py：`_autotuning_exit`
    - https://www.deepspeed.ai/tutorials/autotuning/：如何启动 autotuning
    """

    name = "ds-autotuning-left-on"
    title = Text(en="Autotuning is on: the run ends after a few steps", zh="开启了 autotuning：运行几步后就会结束")
    sources = (
        "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py",
        "https://www.deepspeed.ai/tutorials/autotuning/",
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Iterator[Finding]:
        """The section on, unless the launcher is told to tune."""
        if not is_on(config, "autotuning"):
            return
        launch = run.launch
        if launch is not None and not launch.launcher_options.get("autotuning").absent:
            return
        last = config.raw("autotuning", "end_profile_step").number
        yield self.finding(
            Text(
                en="autotuning is enabled: DeepSpeed ends the run after step {last}, without an error and without "
                "a model.",
                zh="autotuning 已开启：DeepSpeed 会在第 {last} 步之后结束运行，没有报错，也没有模型。",
            ).format(last=5 if last is None else int(last)),
            certainty=Certainty.CERTAIN if launch is not None else Certainty.LIKELY,
            cure=(
                Text('Set "enabled": false, or remove the section', "设置 “enabled”: false，或去掉该段"),
                Text(
                    "To tune, start it with deepspeed --autotuning tune",
                    "若要调优，用 deepspeed --autotuning tune 启动",
                ),
            ),
            spans=(spot(config, "autotuning", "enabled"),),
            fixes=fix_of(
                Text("switch autotuning off", "关闭 autotuning"),
                lambda: config.replacing("autotuning", "enabled", value=False),
                safe=False,
            ),
        )
