from gonogo.hazards.post_training._generation_batch import generation_batch
from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class GrpoGenerationsNotDividingBatch(LoggedHazard):
    """Processes × per-device batch (× accumulation, in newer TRL) is not a multiple of `num_generations`.
    ## What happens
    "The global train batch size (7 x 1) must be evenly divisible by the number of generations per prompt (8)",
    "generation_batch_size (4) must be divisible by num_generations (8)", "The global eval batch size (1 * 1) must be
    divisible by the number of generations used for evaluation (8)".
    ## Why
    In GRPO and RLOO `per_device_train_batch_size` counts completions, not prompts: all completions of a prompt have to
    be in one batch, since the advantage compares them. `num_generations` is 8 by default. Before TRL 0.17 one forward
    batch over all processes had to hold whole groups; since then it is `generation_batch_size` = processes × per-device
    batch × `steps_per_generation` (by default the accumulation steps).
    ## Example
    ```python
    GRPOConfig(per_device_train_batch_size=1, num_generations=8)   # wrong on 7 processes
    GRPOConfig(per_device_train_batch_size=8, num_generations=8)   # right
    ```
    ## Cure
    Make the product a multiple of `num_generations`, or give a `num_generations` that divides it. With evaluation, the
    same of `per_device_eval_batch_size`.
    ## When it is safe
    Where the batch of all processes is a multiple of num_generations.
    ## Sources
    - https://github.com/huggingface/open-r1/issues/249: 7 processes, 8 generations
    - https://github.com/huggingface/trl/issues/2858: one GPU with per-device batch 1
    - https://github.com/modelscope/ms-swift/issues/3980: ms-swift: the batch counts completions
    - https://github.com/wyf3/llm_related/issues/13: a published script with 1 × 1 and 16
    - https://github.com/huggingface/trl/issues/3020: what has to divide in newer TRL
    """

    name = "grpo-generations-not-dividing-batch"
    title = Text("The GRPO batch does not divide by the generations per prompt", "GRPO 批次不能被每个提示的生成数整除")

    ends_at = (("trainer/grpo_trainer.py", "raise ValueError("), ("trainer/grpo_config.py", "raise ValueError("))
    traces = ("num_generations not in possible_values",)
    log_words = ("number of generations", "num_generations")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"global (?P<what>train"
                r"|eval) batch size \((?P<batch>[\d x*]+)\) must be (?:evenly )?divisible by the number of "
                r"generations (?:per prompt|used for evaluation) \((?P<n>\d+)\)"
            ),
            Certainty.CERTAIN,
            cause=Text(
                "The {what} batch of all processes is {batch} completions, which {n} generations per prompt do "
                "not divide.",
                "所有进程的 {what} 批次为 {batch} 个生成结果，不能被每个提示的 {n} 个生成整除。",
            ),
        ),
        Sign(
            Pattern(
                r"generation_batch_size \((?P<batch>\d+)\) must be divisible by num_generations(?:_eval)? "
                r"\((?P<n>\d+)\)"
            ),
            Certainty.CERTAIN,
            cause=Text(
                "A generation batch has {batch} completions, which {n} generations per prompt do not divide.",
                "一个生成批次有 {batch} 个生成结果，不能被每个提示的 {n} 个生成整除。",
            ),
        ),
        Sign(
            Pattern(
                r"must be (?:evenly )?divisible by (?:the )?(?:number of generations|num_generations"
                r"|n_samples_per_prompt)"
                r"|GRPO requires at least 2 generations per prompt|effective train batch size .*number of generations"
            ),
            Certainty.CERTAIN,
        ),
        Sign(
            types=("ValueError", ""),
            frames=(
                ("grpo_trainer.py", "rloo_trainer.py", "grpo_config.py", "rloo_config.py"),
                ("num_generations", "possible_values"),
            ),
            certainty=Certainty.LIKELY,
        ),
        Sign(
            types=("",), frames=(("grpo_config.py", "rloo_config.py"), ("__post_init__",)), certainty=Certainty.POSSIBLE
        ),
    )
    cause = Text(
        "The batch of all processes is not a multiple of the generations per prompt (num_generations, 8 by default).",
        "所有进程的批次不是每个提示生成数（num_generations，默认 8）的整数倍。",
    )
    cures = (
        Text(
            "Make processes × per_device_train_batch_size (× gradient_accumulation_steps since TRL 0.17) a "
            "multiple of num_generations, or set num_generations to a divisor of it",
            "让 进程数 × per_device_train_batch_size（TRL 0.17 起再乘 gradient_accumulation_steps）成为 "
            "num_generations 的整数倍，或把 num_generations 设为其约数",
        ),
        Text("With evaluation, the same for per_device_eval_batch_size", "有评估时，per_device_eval_batch_size 同理"),
    )
    confirm = (
        Text(
            "The product of processes and per-device batch is no multiple of num_generations",
            "进程数与每设备批次之积不是 num_generations 的整数倍",
        ),
    )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The numbers of the launch, its config file and its script."""
        batch = generation_batch(launch, run)
        if batch is None or batch.completions % batch.generations == 0:
            return
        yield self.finding(
            Text(
                "{how} = {completions} completions, and num_generations is {n}: the trainer refuses to start.",
                "{how} = {completions} 个生成结果，而 num_generations 为 {n}：训练器会拒绝启动。",
            ).format(how=batch.how, completions=batch.completions, n=batch.generations),
            certainty=batch.certainty,
            cure=Text(
                "Take num_generations={divisors}, or a batch that {n} divides",
                "取 num_generations={divisors}，或取能被 {n} 整除的批次",
            ).format(divisors=batch.divisors, n=batch.generations)
            if batch.divisors
            else Text("Take a batch that {n} divides", "取能被 {n} 整除的批次").format(n=batch.generations),
            spans=(*batch.spans, launch.place.span()),
            confirm=() if batch.certainty is Certainty.CERTAIN else self.confirm,
        )
