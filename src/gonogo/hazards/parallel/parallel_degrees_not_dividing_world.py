from math import prod

from gonogo.hazards.parallel._sizes import integer_value
from gonogo.hazards.rule import Certainty, Findings, Launch, LoggedHazard, Run, translated

_DEGREES = (
    "data_parallel_shard_degree",
    "data_parallel_replicate_degree",
    "tensor_parallel_degree",
    "pipeline_parallel_degree",
    "context_parallel_degree",
)


class ParallelDegreesNotDividingWorld(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """torchtitan's degrees, if all are given, whose product is not the number of processes."""
        world = run.world_size
        given = [launch.options.get(f"parallelism.{name}") for name in _DEGREES]
        if world is None or all(field.absent for field in given):
            return
        degrees = [integer_value(field) for field in given]
        if None in degrees or any(degree is not None and degree < 1 for degree in degrees) or given[0].absent:
            return  # a missing degree is computed
        product = prod(degree for degree in degrees if degree)
        if product == world:
            return
        yield self.finding(
            translated("The parallel degrees multiply to {product}, but {world} processes are started.").format(
                product=product, world=world
            ),
            certainty=Certainty.LIKELY,
            spans=(*(field.span() for field in given if field.known), launch.world_size.span()),
        )
