from gonogo.evidence.field import whole_number
from gonogo.hazards.rollout._settings import colocated, verl
from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class RolloutTpNotDividingWorld(LoggedHazard):
    """The engine's tensor-parallel size is larger than the number of GPUs, or no divisor of it.
    ## What happens
    "rollout world_size: 1 is not divisible by infer_tp: 2" (verl, whose default is 2), "vllm_tensor_parallel_size (2)
    must divide world size (3) evenly" (TRL, ms-swift), "tensor parallel size should be less than or equal to the world
    size".
    ## Why
    A colocated engine takes the trainer's ranks in groups of tensor-parallel size; all ranks have to belong to one.
    ## Example
    ```sh
    … trainer.n_gpus_per_node=1                                                        # wrong
    … trainer.n_gpus_per_node=1 actor_rollout_ref.rollout.tensor_model_parallel_size=1 # right
    ```
    ## Cure
    Set the engine's tensor-parallel size to a divisor of the GPUs:
    `actor_rollout_ref.rollout.tensor_model_parallel_size=1` on one GPU.
    ## When it is safe
    Where the number of GPUs is a multiple of it.
    ## Sources
    - https://github.com/verl-project/verl/issues/1191: one GPU with verl's default of 2
    - https://github.com/verl-project/verl/issues/1785: two pods of one GPU that are not one Ray cluster
    - https://github.com/verl-project/verl/issues/4569: how verl derives the size
    """

    name = "rollout-tp-not-dividing-world"
    title = Text(
        "The rollout's tensor-parallel size does not divide the number of GPUs", "rollout 的张量并行数不能整除 GPU 数"
    )

    log_words = ("divisible by infer_tp", "must divide world size", "less than or equal to the world size")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"world_size: (?P<world>\d+) is not divisible by infer_(?:tp|world_size|parallel_size): ?(?P<tp>\d+)"
            ),
            Certainty.CERTAIN,
            cause=Text(
                "The engine is to take {tp} GPUs at a time, and the rollout has {world}.",
                "引擎每组要用 {tp} 张 GPU，而 rollout 共有 {world} 张。",
            ),
        ),
        Sign(
            Pattern(r"tensor_parallel_size \((?P<tp>\d+)\) must divide world size \((?P<world>\d+)\) evenly"),
            Certainty.CERTAIN,
            cause=Text(
                "The engine's tensor-parallel size is {tp}, and {world} processes train: they cannot be parted "
                "into such groups.",
                "引擎的张量并行数为 {tp}，而训练进程有 {world} 个：无法分成这样的组。",
            ),
        ),
        Sign(Pattern(r"tensor parallel size should be less than or equal to the world size"), Certainty.CERTAIN),
        Sign(
            Pattern(
                r"(?i)(?:world[ _]size|number of gpus|n_gpus"
                r"|num_gpus).{0,40} (?:not )?(?:be )?(?:evenly )?divisible by .{0,30}(?:rollout|infer|vllm|sglang"
                r"|gen)\w*[ _]?(?:tp|tensor)"
            )
        ),
    )
    cause = Text(
        "The engine's tensor-parallel size is more than the GPUs, or no divisor of their number.",
        "引擎的张量并行数大于 GPU 数，或不是其约数。",
    )
    cures = (
        Text(
            "Set the tensor-parallel size of the rollout to a divisor of the GPUs: "
            "actor_rollout_ref.rollout.tensor_model_parallel_size, vllm_tensor_parallel_size",
            "把 rollout 的张量并行数设为 GPU 数的约数："
            "actor_rollout_ref.rollout.tensor_model_parallel_size、vllm_tensor_parallel_size",
        ),
    )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """verl's GPUs, or the processes of a trainer with a colocated engine, against the engine's size."""
        command = verl(launch, run)
        if command is not None:
            size, gpus = command.number("actor_rollout_ref.rollout.tensor_model_parallel_size"), command.gpus
            if size is None or gpus is None or not (size.given or gpus.given):
                return
            tp, world, given = size.value, gpus.value, (size.span, gpus.span)
            sure = command.field("actor_rollout_ref.rollout.name").get("vllm") in ("vllm", "sglang")
        elif (mode := colocated(run)) is not None:
            field = run.arguments.get("vllm_tensor_parallel_size")
            size_given, processes = whole_number(field), run.world_size
            if size_given is None or processes is None:
                return
            tp, world, given, sure = size_given, processes, (field.span(), mode.span()), True
        else:
            return
        if tp < 1 or world % tp == 0:
            return
        yield self.finding(
            Text(
                "The engine's tensor-parallel size {tp} does not divide {world} GPUs.",
                "引擎的张量并行数 {tp} 不能整除 {world} 张 GPU。",
            ).format(tp=tp, world=world),
            certainty=Certainty.CERTAIN if sure else Certainty.LIKELY,
            cure=Text("Take a divisor of {world}: {divisors}", "取 {world} 的约数：{divisors}").format(
                world=world, divisors=", ".join(str(one) for one in range(1, world + 1) if world % one == 0)[:60]
            ),
            spans=(*given, launch.place.span()),
        )
