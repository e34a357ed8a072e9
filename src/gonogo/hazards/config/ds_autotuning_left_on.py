from gonogo.hazards.config._written import is_on, span_in
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Text


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

    name = "ds-autotuning-left-on"
    title = Text(en="Autotuning is on: the run ends after a few steps", zh="开启了 autotuning：运行几步后就会结束")

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """The section on, unless the launcher is told to tune."""
        if not is_on(config, "autotuning"):
            return
        launch = run.launch
        if launch is not None and not launch.launcher_options.get("autotuning").absent:
            return
        last = config.raw("autotuning", "end_profile_step").number
        yield self.finding(
            Text(
                en="autotuning is enabled: DeepSpeed ends the run after step {last}, without an error and without a "
                "model.",
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
            spans=(span_in(config, "autotuning", "enabled"),),
            fixes=fix_of(
                Text("switch autotuning off", "关闭 autotuning"),
                lambda: config.replacing("autotuning", "enabled", value=False),
                safe=False,
            ),
        )
