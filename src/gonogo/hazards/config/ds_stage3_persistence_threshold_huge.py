from gonogo.hazards.config._written import ZERO, span_in
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Severity, Text

_MATRIX = 4096 * 4096


class DsStage3PersistenceThresholdHuge(Hazard):
    """The threshold is larger than the model's weight matrices.

    ## What happens
    ZeRO-3 saves hardly any memory: the weights lie whole on every GPU.

    ## Why
    Parameters of fewer elements than the threshold are never divided. A 4096 x 4096 matrix has 16.8 million.

    ## Cure
    1e5 (the default) to 1e6; "auto" under transformers takes 10 x hidden_size.

    ## When it is safe
    Where the model fits whole, and stage 3 is used for its offload only; a stage3_model_persistence_threshold
    limits it.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/pull/5073: the default of 1e5
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py:
      param_persistence_threshold
    """

    name = "ds-stage3-persistence-threshold-huge"
    title = Text(
        en="stage3_param_persistence_threshold keeps the weights whole on every GPU",
        zh="stage3_param_persistence_threshold 使每块 GPU 都保留完整权重",
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """A threshold above the size of a common weight matrix."""
        size = config.raw(ZERO, "stage3_param_persistence_threshold").number
        if config.zero_stage != 3 or size is None or size < _MATRIX:
            return
        if not config.raw(ZERO, "stage3_model_persistence_threshold").absent:
            return
        yield self.finding(
            Text(
                en="stage3_param_persistence_threshold is {size:,.0f}: every parameter below that stays whole on each "
                "GPU, as a 4096 x 4096 matrix (16,777,216) would.",
                zh="stage3_param_persistence_threshold 为 {size:,.0f}：小于它的参数都完整留在每块 GPU 上，4096 x 4096 "
                "的矩阵（16,777,216）也不例外。",
            ).format(size=size),
            severity=Severity.WARNING,
            certainty=Certainty.LIKELY,
            cure=(Text("Write 1e5, the default, or 1e6", "写默认值 1e5，或 1e6"),),
            spans=(span_in(config, ZERO, "stage3_param_persistence_threshold"),),
            fixes=fix_of(
                Text("take the default", "使用默认值"),
                lambda: config.replacing(ZERO, "stage3_param_persistence_threshold", value=100000),
                safe=False,
            ),
        )
