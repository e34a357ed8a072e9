from gonogo.hazards.parallel._sizes import first_given_option, has_megatron_options, integer_value
from gonogo.hazards.rule import Findings, Launch, LoggedHazard, Run


class SequenceNotDivisibleByTp(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Megatron-LM's fixed sequence length, not divisible by its tensor or context sizes."""
        length = first_given_option(launch, "seq_length")
        tensor, context = (
            first_given_option(launch, "tensor_model_parallel_size"),
            first_given_option(launch, "context_parallel_size"),
        )
        count, tp, cp = integer_value(length, None), integer_value(tensor), integer_value(context)
        if count is None or tp is None or cp is None or not has_megatron_options(launch):
            return
        splits = (tp if launch.options.get("sequence_parallel").truth else 1) * (2 * cp if cp > 1 else 1)
        if not count % splits:
            return
        yield self.finding(
            self.texts["cause"].format(length=count, splits=splits, tp=tp, cp=cp),
            spans=(length.span(), tensor.span() if tensor.known else None, context.span() if context.known else None),
        )
