from gonogo.hazards.facts.deepspeed_settings import read_by_json
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Pattern, Refusal, Run, Severity, Text


class DsConfigDuplicateKey(Hazard):
    """One object of the config has the same key twice.
    ## What happens
    DeepSpeed: "ValueError: Duplicate keys in DeepSpeed config: ['stage']". transformers and accelerate say nothing,
    and take the last value.
    ## Why
    DeepSpeed's reader refuses duplicates; Python's `json` lets the last one win, so the first setting silently has
    no effect.
    ## Example
    ```json
    "zero_optimization": {"stage": 2, "overlap_comm": true, "stage": 3}   // wrong
    "zero_optimization": {"overlap_comm": true, "stage": 3}               // right
    ```
    ## Cure
    Keep the one that is meant.
    ## When it is safe
    Never: one of the two does nothing.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/config_utils.py:
      `dict_raise_error_on_duplicate_keys`
    - https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/deepspeed.py: `json.load`, which
      takes the last
    """

    name = "ds-config-duplicate-key"
    title = Text("A key stands twice in one object of the DeepSpeed config", "DeepSpeed 配置的同一对象中有重复的键")
    refusal = Refusal(Pattern(r"Duplicate keys in DeepSpeed config"))

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Each key that its object has already."""
        by_json = read_by_json(run)
        for problem in config.problems:
            if problem.kind != "duplicate-key":
                continue
            yield self.finding(
                Text("{what}. {consequence}", "{what}。{consequence}").format(
                    what=problem.message,
                    consequence=Text(
                        "transformers and accelerate read this file: the earlier value has no effect.",
                        "此文件由 transformers 与 accelerate 读取：先写的值不起作用。",
                    )
                    if by_json
                    else Text("With DeepSpeed's own reader the run stops.", "由 DeepSpeed 自己读取时，运行会停止。"),
                ),
                certainty=Certainty.LIKELY if by_json is None else Certainty.CERTAIN,
                severity=Severity.WARNING if by_json else Severity.ERROR,
                cure=Text("Keep one of the two entries", "两项只保留一项"),
                spans=problem.place.span(),
            )
