from math import prod

from gonogo.evidence.patterns import Match
from gonogo.hazards.log_rule import LoggedHazard
from gonogo.hazards.parallel._sizes import is_megatron, number_of, size_of
from gonogo.hazards.rule import Findings, Launch, Run, Text


class MegatronWorldSizeNotDivisible(LoggedHazard):
    def format_cause(self, match: Match | None) -> Text:
        """The cause, with the world size."""
        world = match.groupdict().get("world") if match is not None else None
        return self.cause.format(told=Text(f" (world size {world})", f"（world size 为 {world}）") if world else "")

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Products of the parallel sizes in the command that do not divide the number of processes."""
        world = run.world_size
        if world is None or not is_megatron(launch):
            return
        if launch.launcher == "python" and not launch.variable("WORLD_SIZE").absent:
            return  # a single-process tool that writes the shards of many ranks
        tensor = size_of(launch, "tensor_model_parallel_size")
        pipeline = size_of(launch, "pipeline_model_parallel_size")
        context, expert = size_of(launch, "context_parallel_size"), size_of(launch, "expert_model_parallel_size")
        expert_tensor = size_of(launch, "expert_tensor_parallel_size")
        dense = [number_of(size) for size in (tensor, pipeline, context)]
        of_experts = [number_of(expert), number_of(expert_tensor, number_of(tensor)), number_of(pipeline)]
        for fields, sizes in (((tensor, pipeline, context), dense), ((expert, expert_tensor, pipeline), of_experts)):
            known = [size for size in sizes if size]
            if len(known) < len(sizes) or not world % (product := prod(known)):
                continue
            if fields[0] is expert and expert_tensor.absent:
                continue  # its default differs between releases
            yield self.finding(
                self.texts["cause"].format(product=product, sizes=" x ".join(map(str, known)), world=world),
                cure=self.cures,
                spans=(*(field.span() for field in fields if field.known), launch.world_size.span()),
            )
            return
