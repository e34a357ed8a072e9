from gonogo.hazards.config_rule import ConfigHazard
from gonogo.hazards.rule import Field, Pattern, Refusal, Text


def _no_stage(field: Field) -> bool:
    """Another value than the four, in quotes (which are told of elsewhere) or without."""
    stage = field.value in (0, 1, 2, 3) or str(field.value).strip() in ("0", "1", "2", "3", "auto")
    return field.known and not stage


class DsZeroStageInvalid(ConfigHazard):
    """zero_optimization.stage is none of 0, 1, 2, 3.
    ## What happens
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for DeepSpeedZeroConfig, stage, Input should
    be 0, 1, 2, 3 or 3".
    ## Why
    DeepSpeed has four stages.
    ## Example
    ```json
    "stage": 4    // wrong
    "stage": 3    // right
    ```
    ## Cure
    Write 0, 1, 2 or 3 without quotes.
    ## When it is safe
    "auto" where accelerate fills it in.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py: `ZeroStageEnum`
    - https://github.com/deepspeedai/DeepSpeedExamples/issues/287: a validation error of DeepSpeedZeroConfig
    """

    name = "ds-zero-stage-invalid"
    raises = True
    title = Text("There is no such ZeRO stage", "没有这个 ZeRO stage")
    refusal = Refusal(
        Pattern(
            r"DeepSpeedZeroConfig\W.*\bstage\b.*(?:Input should be 0, 1, 2|value is not a valid enumer"
            r"ation member)"
        )
    )

    keys = ("zero_optimization.stage",)
    wrong = _no_stage
    cause = Text(
        "ZeRO has the stages 0, 1, 2 and 3, and the config asks for {value}: DeepSpeed refuses it.",
        "ZeRO 只有 stage 0、1、2、3，而配置写的是 {value}：DeepSpeed 会拒绝。",
    )
    cure = Text(
        "Write 1 (optimizer states partitioned), 2 (gradients as well) or 3 (parameters as well)",
        "写 1（切分优化器状态）、2（再切分梯度）或 3（再切分参数）",
    )
