from math import prod

from gonogo.hazards.parallel._sizes import number_of
from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_DEGREES = (
    "data_parallel_shard_degree",
    "data_parallel_replicate_degree",
    "tensor_parallel_degree",
    "pipeline_parallel_degree",
    "context_parallel_degree",
)
_REFUSED = Pattern(
    r"Invalid parallel dims: .{0,160}!= ?WORLD_SIZE"
    r"|World size \d+ must be divisible by the product of all parallel degrees"
    r"|Mesh should not be bigger than default world size"
    r"|WORLD_SIZE \(\d+\) must be divisible by"
    r"|ulysses_size(?: \* ring_size)? should be equal to the world size"
    r"|ParallelismConfig total_size \(\d+\) does not match num_processes"
)


class ParallelDegreesNotDividingWorld(LoggedHazard):
    """dp x tp x pp x cp (x ep) is not the world size, or does not divide it.
    ## What happens
    `Invalid parallel dims: dp_replicate(1) * dp_shard(4) * cp(1) * tp(4) * pp(1) != WORLD_SIZE(8)` (torchtitan),
    `World size 2 must be divisible by the product of all parallel degrees` (finetrainers), `Mesh should not be
    bigger than default world size`, `WORLD_SIZE (6) must be divisible by ...` (transformers).
    ## Why
    The degrees are the sides of a mesh in which each process has one place. A recipe for another number of GPUs, or
    a launcher that starts fewer, leaves places empty.
    ## Example
    ```sh
    NGPU=4 ./run_train.sh --parallelism.tensor_parallel_degree 4 --parallelism.data_parallel_shard_degree 2    # wrong
    NGPU=8 ./run_train.sh --parallelism.tensor_parallel_degree 4 --parallelism.data_parallel_shard_degree 2    # right
    ```
    ## Cure
    Make the product of all degrees (data, shard, tensor, pipeline, context) the number of processes, or leave one
    at -1. Or start that many processes: --nproc_per_node times --nnodes.
    ## When it is safe
    Where one degree is left to be computed (-1), and the others divide the world.
    ## Sources
    - https://github.com/huggingface/finetrainers/issues/408: 2 processes, other degrees
    - https://github.com/pytorch/torchtitan/issues/2184: the degrees of torchtitan
    - https://github.com/huggingface/accelerate/pull/3905: tensor parallelism and hybrid sharding by accelerate's
      parallelism config
    """

    name = "parallel-degrees-not-dividing-world"
    title = Text("The parallel degrees do not multiply to the number of processes", "各并行度的乘积与进程数不符")
    log_words = (
        "must be divisible by",
        "WORLD_SIZE",
        "Invalid parallel dims",
        "Mesh should not be bigger",
        "ulysses_size",
    )
    signs = (
        Sign(says=_REFUSED, certainty=Certainty.CERTAIN),
        Sign(
            says=Pattern(
                r"(?i)world[_ ]size.{0,60}(?:must|should) (?:be divisible by|equal).{0,80}(?:parallel|degree|tp|p"
                r"p|cp|shard)"
            )
        ),
    )
    cause = Text(
        "The product of the parallel degrees is not what the number of processes allows.",
        "各并行度的乘积与进程数不相容。",
    )
    cures = (
        Text(
            "Make the product of all degrees (data, shard, tensor, pipeline, context) the number of "
            "processes, or leave one at -1",
            "使所有并行度（数据、切分、张量、流水、上下文）的乘积等于进程数，或把其中一个留为 -1",
        ),
        Text(
            "Or start that many processes: --nproc_per_node times --nnodes",
            "或启动相应数量的进程：--nproc_per_node 乘以 --nnodes",
        ),
    )
    confirm = Text("The product and WORLD_SIZE, computed by hand", "手工计算乘积与 WORLD_SIZE")

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """torchtitan's degrees, where all of them are given, against the number of processes."""
        world = run.world_size
        given = [launch.options.get(f"parallelism.{name}") for name in _DEGREES]
        if world is None or all(field.absent for field in given):
            return
        degrees = [number_of(field) for field in given]
        if None in degrees or any(degree is not None and degree < 1 for degree in degrees) or given[0].absent:
            return  # the one that is left out is computed
        product = prod(degree for degree in degrees if degree)
        if product == world:
            return
        yield self.finding(
            Text(
                "The parallel degrees multiply to {product}, and {world} processes are started.",
                "各并行度的乘积为 {product}，而启动了 {world} 个进程。",
            ).format(product=product, world=world),
            certainty=Certainty.LIKELY,
            cure=self.cures,
            spans=(*(field.span() for field in given if field.known), launch.world_size.span()),
        )
