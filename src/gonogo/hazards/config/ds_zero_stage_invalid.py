from gonogo.hazards.config._written import ZERO, span_in
from gonogo.hazards.facts.how_it_trains import as_json
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Text


class DsZeroStageInvalid(Hazard):
    """zero_optimization.stage is none of 0, 1, 2, 3.

    ## What happens
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for DeepSpeedZeroConfig, stage, Input should
    be 0, 1, 2, 3 or 3".

    ## Why
    DeepSpeed has four stages.

    ## Cure
    Write 0, 1, 2 or 3 without quotes.

    ## When it is safe
    "auto" where accelerate fills it in.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py: `ZeroStageEnum`
    - https://github.com/deepspeedai/DeepSpeedExamples/issues/287: a validation error of DeepSpeedZeroConfig
    """

    name = "ds-zero-stage-invalid"
    title = Text(en="There is no such ZeRO stage", zh="没有这个 ZeRO stage")

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """A stage that DeepSpeed refuses."""
        field = config.raw(ZERO, "stage")
        valid = field.value in (0, 1, 2, 3) and not isinstance(field.value, str)
        if not field.known or field.value == "auto" or valid:
            return
        written = str(field.value).strip()
        if isinstance(field.value, str) and written in ("0", "1", "2", "3"):
            return  # the quotes are told elsewhere
        yield self.finding(
            Text(
                en="ZeRO has the stages 0, 1, 2 and 3, and the config asks for {value}: DeepSpeed refuses it.",
                zh="ZeRO 只有 stage 0、1、2、3，而配置写的是 {value}：DeepSpeed 会拒绝。",
            ).format(value=as_json(field.value)),
            cure=(
                Text(
                    "Write 1 (optimizer states divided), 2 (gradients as well) or 3 (parameters as well)",
                    "写 1（切分优化器状态）、2（再切分梯度）或 3（再切分参数）",
                ),
            ),
            spans=(span_in(config, ZERO, "stage"),),
        )
