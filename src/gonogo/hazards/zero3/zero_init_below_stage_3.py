from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.rehearsal.failures import failed_ranks, places, setting
from gonogo.hazards.facts.zero_files import stage_span, tests_the_stage
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, Run, Script, Text

_CURE = (
    Text(
        "Build the model without deepspeed.zero.Init, or pass enabled=(stage == 3)",
        "构建模型时不用 deepspeed.zero.Init，或传入 enabled=(stage == 3)",
    ),
    Text('Or train with "stage": 3', '或以 "stage": 3 训练'),
)
_PARTITIONS = "initialize_gradient_partitioning_data_structures"


class ZeroInitBelowStage3(Hazard):
    """A model is built inside `deepspeed.zero.Init`, and trained with ZeRO-2 or lower.
    ## What happens
    `deepspeed.initialize` fails in `initialize_gradient_partitioning_data_structures` ("KeyError: 0"), or the first
    forward does: "RuntimeError: 'weight' must be 2-D" at the embedding.
    ## Why
    `deepspeed.zero.Init` partitions each parameter as it is made and leaves an empty tensor, whatever the stage in the
    config that it is given. Only the engine of ZeRO-3 gathers the parameters again; that of a lower stage takes them
    as they are, empty.
    ## Example
    ```python
    with deepspeed.zero.Init(config_dict_or_path=config):                       # wrong with "stage": 2
        model = AutoModelForCausalLM.from_config(model_config)

    with deepspeed.zero.Init(config_dict_or_path=config, enabled=stage == 3):   # right for any stage
        model = AutoModelForCausalLM.from_config(model_config)
    ```
    ## Cure
    Leave `deepspeed.zero.Init` out, or switch it by `enabled=`; or train with ZeRO-3.
    ## When it is safe
    With ZeRO-3; with `enabled=False`; where the weights are gathered and kept whole before training.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/3752: zero.Init does not work with stage 2, and where it says so
    - https://github.com/deepspeedai/DeepSpeed/issues/3234: the KeyError of stage 2 for a model built so
    - https://github.com/deepspeedai/DeepSpeed/issues/3570: "ZeRO-Init only works with zero-3"
    """

    name = "zero-init-below-stage-3"
    title = Text(
        "A model built under deepspeed.zero.Init is trained with ZeRO-2 or lower, which never gathers its weights",
        "在 deepspeed.zero.Init 下构建的模型以 ZeRO-2 或更低阶段训练，其权重永远不会被聚合",
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """``zero.Init`` that no argument or test switches off, beside a config of a lower stage."""
        if run.zero_stage not in (0, 1, 2) or next(script.calls("deepspeed.initialize"), None) is None:
            return
        for call in script.calls("deepspeed.zero.Init", "deepspeed.runtime.zero.partition_parameters.Init"):
            if not call.keyword("enabled").absent or tests_the_stage(script, call.node):
                continue
            yield self.finding(
                Text(
                    "The model is built under deepspeed.zero.Init, which leaves its parameters empty, and the engine "
                    "of ZeRO-{stage} never gathers them.",
                    "模型在 deepspeed.zero.Init 下构建，参数为空，而 ZeRO-{stage} 的引擎永远不会聚合它们。",
                ).format(stage=run.zero_stage),
                certainty=Certainty.LIKELY,
                cure=_CURE,
                spans=(call.place.span(), stage_span(run)),
                confirm=Text("This model is the one that is trained", "训练的就是这个模型"),
            )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """An empty parameter of the trained model, in an engine of a lower stage."""
        for failed in failed_ranks(record):
            failure = failed.failure
            stage = setting(failed.first.deepspeed_config, "zero_optimization", "stage")
            empty = next((one for one in failure.operands if one.kind == "parameter" and one.shape == (0,)), None)
            if stage not in (0, 1, 2) or empty is None:
                continue
            yield self.finding(
                Text(
                    "{parameter} is empty: the model was built under deepspeed.zero.Init, and the engine of "
                    "ZeRO-{stage} does not gather parameters.",
                    "{parameter} 为空：模型在 deepspeed.zero.Init 下构建，而 ZeRO-{stage} 的引擎不聚合参数。",
                ).format(parameter=empty.parameter, stage=stage),
                cure=_CURE,
                spans=places((failure.innermost("user"), Text("reached from here", "由此处进入"))),
                ranks=failed.ranks,
            )

    log_words = (_PARTITIONS,)

    def in_log(self, log: FailureLog) -> Findings:
        """The optimizer of stages 1 and 2 finds no parameter to partition."""
        for error in log.errors_of("KeyError"):
            if not any(_PARTITIONS in frame.function for frame in error.all_frames):
                continue
            yield self.log_finding(
                error,
                Text(
                    "ZeRO-1 or ZeRO-2 finds parameters without elements: the model was built under "
                    "deepspeed.zero.Init, which is ZeRO-3's alone.",
                    "ZeRO-1 或 ZeRO-2 发现参数没有元素：模型在 deepspeed.zero.Init 下构建，而它只用于 ZeRO-3。",
                ),
                cure=_CURE,
                certainty=Certainty.LIKELY,
                confirm=Text("The model is built inside zero.Init", "模型在 zero.Init 中构建"),
            )
