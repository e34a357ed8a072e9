from gonogo.hazards.log_rule import LoggedHazard
from gonogo.hazards.parallel._sizes import is_megatron, number_of, size_of
from gonogo.hazards.rule import Findings, Launch, Run


class SequenceNotDivisibleByTp(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Megatron-LM's fixed sequence length, not divisible by its tensor or context sizes."""
        length = size_of(launch, "seq_length")
        tensor, context = size_of(launch, "tensor_model_parallel_size"), size_of(launch, "context_parallel_size")
        count, tp, cp = number_of(length, None), number_of(tensor), number_of(context)
        if count is None or tp is None or cp is None or not is_megatron(launch):
            return
        splits = (tp if launch.options.get("sequence_parallel").truth else 1) * (2 * cp if cp > 1 else 1)
        if not count % splits:
            return
        yield self.finding(
            self.texts["cause"].format(length=count, splits=splits, tp=tp, cp=cp),
            cure=self.cures,
            spans=(length.span(), tensor.span() if tensor.known else None, context.span() if context.known else None),
        )
