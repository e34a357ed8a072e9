from gonogo.hazards.parallel._sizes import first_given_option, has_megatron_options, integer_value
from gonogo.hazards.rule import Certainty, Field, Findings, Launch, LoggedHazard, Run, translated


class MegatronHeadsNotDivisibleByTp(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Heads or query groups, from options or the loaded model, not divisible by the tensor-parallel size."""
        tensor = first_given_option(launch, "tensor_model_parallel_size")
        size = integer_value(tensor)
        if not has_megatron_options(launch) or size is None or size < 2:
            return
        config = run.model.config if run.model is not None and run.model.config is not None else {}
        for option, key in (
            ("num_attention_heads", "num_attention_heads"),
            ("num_query_groups", "num_key_value_heads"),
        ):
            given = first_given_option(launch, option)
            heads = integer_value(given, None) or integer_value(Field.of(config.get(key), None), None)
            if heads is None or not heads % size:
                continue
            # Query groups are replicated since core 0.16; every release of Megatron's own program rejects such heads.
            own = given.known and launch.framework is None
            yield self.finding(
                translated("{heads} ({key}) is not divisible by the tensor-parallel size {size}.").format(
                    heads=heads, key=key, size=size
                ),
                certainty=Certainty.CERTAIN if own and key == "num_attention_heads" else Certainty.LIKELY,
                spans=(tensor.span(), given.span() if given.known else None),
            )
            return
