from gonogo.hazards.parallel._sizes import is_megatron, number_of, size_of
from gonogo.hazards.rule import Certainty, Field, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_UNEVEN = (
    "decoder_first_pipeline_num_layers",
    "decoder_last_pipeline_num_layers",
    "num_layers_in_first_pipeline_stage",
    "num_layers_in_last_pipeline_stage",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
    "pipeline_model_parallel_layout",
)
_REFUSED = Pattern(
    r"(?i)num(?:ber of|_)[ _]?(?:transformer )?layers.{0,40}(?:should|must) be divisible by.{0,40}(?:"
    r"pipeline|virtual|vp_size)"
    r"|left over layers must be divisible by left over stages"
    r"|number of (?:middle )?layers.{0,60}must be divisible by"
)


class PipelineLayersNotDivisible(LoggedHazard):
    """Megatron gives every pipeline stage as many layers, unless it is told otherwise.
    ## What happens
    `AssertionError: Number of layers should be divisible by the pipeline-model-parallel size`, `num_layers should
    be divisible by pipeline_model_parallel_size`, or the same with virtual stages.
    ## Why
    46 layers over 4 stages leave two over. First and last stage may be given fewer
    (`--decoder-first-pipeline-num-layers`, `--decoder-last-pipeline-num-layers`), or embedding and loss counted as
    layers.
    ## Example
    ```sh
    --num-layers 46 --pipeline-model-parallel-size 4    # wrong
    # right: 12 + 12 + 12 + 10
    --num-layers 46 --pipeline-model-parallel-size 4 --decoder-last-pipeline-num-layers 10
    ```
    ## Cure
    Choose a pipeline size that divides the layers, or give the first or the last stage fewer:
    --decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers. Or count embedding and loss as layers:
    --account-for-embedding-in-pipeline-split, --account-for-loss-in-pipeline-split.
    ## When it is safe
    Where the pipeline size (times the virtual stages) divides the number of layers.
    ## Sources
    - https://github.com/modelscope/ms-swift/issues/5737: GLM-4.5-Air: 46 layers, 4 stages
    - https://github.com/NVIDIA-BioNeMo/bionemo-recipes/issues/784: ESM2
    - https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/transformer/transformer_block.py: the check, and
      the ways to give stages uneven numbers
    """

    name = "pipeline-layers-not-divisible"
    title = Text("The number of layers does not divide by the pipeline size", "层数不能被流水并行度整除")
    log_words = ("should be divisible by", "must be divisible by")
    ends_at = (("transformer/transformer_block.py", "get_num_layers_to_build"),)
    signs = (
        Sign(says=_REFUSED, certainty=Certainty.CERTAIN),
        Sign(
            cut=(
                ("transformer_block.py", "get_num_layers_to_build"),
                ("transformer_block.py", "pipeline_model_parallel_size"),
            ),
            within=1,
        ),
        Sign(cut=(("megatron/training/arguments.py", "transformer_pipeline_model_parallel_size"),), within=1),
    )
    cause = Text("The layers do not divide evenly over the pipeline's stages.", "层数不能在流水的各阶段之间均分。")
    cures = (
        Text(
            "Choose a pipeline size that divides the layers, or give the first or the last stage fewer: "
            "--decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers",
            "选择能整除层数的流水并行度，或给首尾阶段较少的层：--decoder-first-pipeline-num-layers、"
            "--decoder-last-pipeline-num-layers",
        ),
        Text(
            "Or count embedding and loss as layers: --account-for-embedding-in-pipeline-split, "
            "--account-for-loss-in-pipeline-split",
            "或把 embedding 与 loss 计为层：--account-for-embedding-in-pipeline-split、"
            "--account-for-loss-in-pipeline-split",
        ),
    )
    confirm = Text(
        "num_hidden_layers of the model modulo the pipeline size is not 0",
        "模型的 num_hidden_layers 对流水并行度取余不为 0",
    )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Megatron-LM's numbers, or those of the model that is loaded."""
        if not is_megatron(launch) or any(not launch.options.get(name).absent for name in _UNEVEN):
            return
        stages = size_of(launch, "pipeline_model_parallel_size")
        given = size_of(launch, "num_layers")
        layers = number_of(given, None)
        config = run.model.config if run.model is not None else None
        if layers is None and config is not None:
            layers = number_of(Field.of(config.get("num_hidden_layers"), None), None)
        size = number_of(stages)
        if layers is None or size is None or size < 2 or not layers % size:
            return
        yield self.finding(
            Text(
                "{layers} layers do not divide over {size} pipeline stages: Megatron refuses to start.",
                "{layers} 层不能均分到 {size} 个流水阶段：Megatron 会拒绝启动。",
            ).format(layers=layers, size=size),
            certainty=Certainty.CERTAIN if given.known else Certainty.LIKELY,
            cure=self.cures,
            spans=(stages.span(), given.span() if given.known else None),
        )
