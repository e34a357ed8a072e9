from gonogo.hazards.config_rule import Change, ConfigHazard, Setting, Words, true
from gonogo.hazards.rule import Certainty, Text


class DsAutotuningLeftOn(ConfigHazard):
    """autotuning is enabled in a config for training.
    ## What happens
    The run ends by itself, without an error, after step 5 (or the profile's last step): exit status 0, and no model
    saved.
    ## Why
    With `autotuning.enabled` every run is a trial: the engine writes its metrics and calls exit().
    ## Example
    ```json
    "autotuning": {"enabled": true}    // wrong: the run ends after a few steps
    "autotuning": {"enabled": false}   // right
    ```
    ## Cure
    Remove the section, or set `"enabled": false`.
    ## When it is safe
    Under `deepspeed --autotuning tune` or `run`, which starts trials.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py: `_autotuning_exit`
    - https://www.deepspeed.ai/tutorials/autotuning/: how autotuning is started
    """

    name = "ds-autotuning-left-on"
    title = Text("Autotuning is on: the run ends after a few steps", "开启了 autotuning：运行几步后就会结束")

    keys = ("autotuning.enabled",)
    wrong = true
    cause = Text(
        "autotuning is enabled: DeepSpeed ends the run after step {last}, without an error and without a model.",
        "autotuning 已开启：DeepSpeed 会在第 {last} 步之后结束运行，没有报错，也没有模型。",
    )
    cure = (
        Text('Set "enabled": false, or remove the section', "设置 “enabled”: false，或去掉该段"),
        Text("To tune, start it with deepspeed --autotuning tune", "若要调优，用 deepspeed --autotuning tune 启动"),
    )
    change = Change(Text("switch autotuning off", "关闭 autotuning"), to=False, safe=False)

    def around(self, at: Setting) -> Words | None:
        """The last step, unless the launcher is told to tune."""
        if at.run.launch is not None and not at.run.launch.launcher_options.get("autotuning").absent:
            return None
        last = at.config.raw("autotuning", "end_profile_step").number
        return {"last": 5 if last is None else int(last)}

    def sureness(self, at: Setting) -> Certainty:
        """Certain where the launcher's options are known."""
        return Certainty.CERTAIN if at.run.launch is not None else Certainty.LIKELY
