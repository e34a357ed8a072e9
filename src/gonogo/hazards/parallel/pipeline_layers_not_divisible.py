from gonogo.hazards.parallel._sizes import first_given_option, has_megatron_options, integer_value
from gonogo.hazards.rule import Certainty, Field, Findings, Launch, LoggedHazard, Run

_UNEVEN_PIPELINE_OPTIONS = (
    "decoder_first_pipeline_num_layers",
    "decoder_last_pipeline_num_layers",
    "num_layers_in_first_pipeline_stage",
    "num_layers_in_last_pipeline_stage",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
    "pipeline_model_parallel_layout",
)


class PipelineLayersNotDivisible(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Layers, from Megatron-LM's options or the loaded model, that the pipeline stages do not divide evenly."""
        if not has_megatron_options(launch) or any(
            not launch.options.get(name).absent for name in _UNEVEN_PIPELINE_OPTIONS
        ):
            return
        stages = first_given_option(launch, "pipeline_model_parallel_size")
        given = first_given_option(launch, "num_layers")
        layers = integer_value(given, None)
        config = run.model.config if run.model is not None else None
        if layers is None and config is not None:
            layers = integer_value(Field.of(config.get("num_hidden_layers"), None), None)
        size = integer_value(stages)
        if layers is None or size is None or size < 2 or not layers % size:
            return
        yield self.finding(
            self.texts["cause"].format(layers=layers, size=size),
            certainty=Certainty.CERTAIN if given.known else Certainty.LIKELY,
            spans=(stages.span(), given.span() if given.known else None),
        )
