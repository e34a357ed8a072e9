from gonogo.hazards.rule import Call, Findings, Hazard, Run, Script, Text


class ProcessGroupRankFixed(Hazard):
    """init_process_group is given a constant rank or a world size of 1 in a script that several processes run.
    ## What happens
    With one rank for all: the processes wait for ranks that never come, until the time-out. With `world_size=1`: each
    trains alone, and no gradient is averaged; the second on a machine often ends with "Address already in use".
    ## Why
    The numbers were written for a trial on one GPU. A launcher starts N processes with the same code, and tells them
    apart by RANK and WORLD_SIZE, which constants override.
    ## Example
    ```python
    dist.init_process_group("nccl", rank=0, world_size=1)    # wrong: the same on every process
    dist.init_process_group("nccl")                          # right: RANK and WORLD_SIZE are the launcher's
    ```
    ## Cure
    Leave both out: `init_process_group("nccl")` takes them from the environment.
    ## When it is safe
    In a script that is started as one process without a launcher.
    ## Sources
    - https://docs.pytorch.org/docs/stable/distributed.html: env:// takes rank and world size from the environment
    - https://github.com/facebookresearch/jepa/issues/55: rank and world size written in for one GPU
    """

    name = "process-group-rank-fixed"
    title = Text("Every process joins the process group as the same rank", "所有进程都以同一个 rank 加入进程组")

    def in_script(self, script: Script, run: Run) -> Findings:
        """A constant rank, or a world of one, where the launch starts several processes."""
        size = run.world_size
        if b"init_process_group" not in script.source.data or size is None or size < 2:
            return
        for call in script.calls("torch.distributed.init_process_group"):
            rank, world = _constant(call, "rank"), _constant(call, "world_size")
            if script.guarded_by(call.node) or (rank is None and world != 1):
                continue
            wrong = [name for name, value in (("rank", rank), ("world_size", world)) if value is not None]
            edits = [script.removing_keyword(call, name) for name in wrong]
            by_environment = call.keyword("init_method").get("env://") == "env://"
            places = [place.span() for name in wrong if (place := call.keyword_place(name)) is not None]
            assert run.launch is not None
            yield self.finding(
                Text(
                    "{given}: the launch starts {size} processes, and each of them says the same of itself.",
                    "{given}：启动命令启动了 {size} 个进程，而每个进程都这样声明自己。",
                ).format(given=", ".join(f"{name}={call.keyword(name).value}" for name in wrong), size=size),
                cure=Text(
                    "Leave rank and world_size out: the launcher tells them by environment variables",
                    "不写 rank 与 world_size：启动器会通过环境变量给出",
                ),
                spans=(
                    *places,
                    run.launch.place.span(Text("starts {size} processes", "启动 {size} 个进程").format(size=size)),
                ),
                fixes=self.fix(Text("Take them from the launcher", "由启动器给出"), edits[0])
                if len(edits) == 1 and edits[0] is not None and by_environment
                else None,
            )


def _constant(call: Call, name: str) -> int | None:
    """A whole number that is written in the call."""
    node = call.keyword_node(name)
    value = getattr(node, "value", None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
