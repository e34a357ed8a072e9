from math import prod

from gonogo.evidence.patterns import Match
from gonogo.hazards.parallel._sizes import first_given_option, has_megatron_options, integer_value
from gonogo.hazards.rule import Findings, Launch, LoggedHazard, Run, Text


class MegatronWorldSizeNotDivisible(LoggedHazard):
    def format_cause(self, match: Match | None) -> Text:
        """The cause, with the world size."""
        world = match.groupdict().get("world") if match is not None else None
        return self.cause.format(told=Text(f" (world size {world})", f"（world size 为 {world}）") if world else "")

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Products of the parallel sizes in the command that do not divide the number of processes."""
        world = run.world_size
        if world is None or not has_megatron_options(launch):
            return
        if launch.launcher == "python" and not launch.variable("WORLD_SIZE").absent:
            return  # a single-process tool that writes the shards of many ranks
        tensor = first_given_option(launch, "tensor_model_parallel_size")
        pipeline = first_given_option(launch, "pipeline_model_parallel_size")
        context, expert = (
            first_given_option(launch, "context_parallel_size"),
            first_given_option(launch, "expert_model_parallel_size"),
        )
        expert_tensor = first_given_option(launch, "expert_tensor_parallel_size")
        dense = [integer_value(size) for size in (tensor, pipeline, context)]
        of_experts = [
            integer_value(expert),
            integer_value(expert_tensor, integer_value(tensor)),
            integer_value(pipeline),
        ]
        for fields, sizes in (((tensor, pipeline, context), dense), ((expert, expert_tensor, pipeline), of_experts)):
            known = [size for size in sizes if size]
            if len(known) < len(sizes) or not world % (product := prod(known)):
                continue
            if fields[0] is expert and expert_tensor.absent:
                continue  # its default differs between releases
            yield self.finding(
                self.texts["cause"].format(product=product, sizes=" x ".join(map(str, known)), world=world),
                spans=(*(field.span() for field in fields if field.known), launch.world_size.span()),
            )
            return
