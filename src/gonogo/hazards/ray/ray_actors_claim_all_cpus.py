from gonogo.hazards.rule import Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class RayActorsClaimAllCpus(LoggedHazard):
    """Actors of environments, rewards or tools take all CPUs of the cluster, and the workers' bundles wait for ever.
    ## What happens
    The run stands still; every half minute "The following resource request cannot be scheduled right now: {'CPU': 2.0,
    'GPU': 2.0}. This is likely due to all cluster resources being claimed by actors", or "placement group … is not
    ready".
    ## Why
    An actor without `num_cpus` holds one CPU for scheduling while it lives; a hundred environments hold a hundred. The
    placement group of the training workers needs CPUs beside its GPUs (one a GPU, in verl), and Ray does not take them
    from anyone.
    ## Example
    ```python
    @ray.remote                    # wrong for 200 environments: each holds a CPU
    @ray.remote(num_cpus=0.1)      # right
    class Environment: ...
    ```
    ## Cure
    Give such actors a fraction (`@ray.remote(num_cpus=0.1)`, `env.resources_per_worker.num_cpus=0.1`), make fewer of
    them, or tell Ray of more CPUs. In containers Ray counts what the container may use: raise its CPU limit.
    ## When it is safe
    Where the sum of all actors' num_cpus and one CPU a GPU is at most what `ray status` shows.
    ## Sources
    - https://github.com/langfengQ/verl-agent/issues/128: environments hold the CPUs, the workers wait
    - https://github.com/ray-project/ray/issues/21920: placement groups that never become ready
    - https://docs.ray.io/en/latest/ray-core/scheduling/resources.html: what an actor without num_cpus holds
    """

    name = "ray-actors-claim-all-cpus"
    title = Text("Other actors hold the CPUs that the GPU workers ask for", "GPU worker 需要的 CPU 被其他 actor 占用")

    log_words = ("cannot be scheduled right now", "claimed by actors")
    anywhere = True
    signs = (
        Sign(
            Pattern(r"all cluster resources being claimed by actors"),
            unless=Pattern(r"No available node types can fulfill"),
        ),
        Sign(Pattern(r"cannot be scheduled right now"), unless=Pattern(r"No available node types can fulfill")),
    )
    cause = Text(
        "Ray cannot place a request because actors already hold what it asks for: those of environments, "
        "rewards or tools count one CPU each unless they say less.",
        "Ray 无法安排某个请求，因为所需资源已被 actor 占用：环境、奖励、工具的 actor 若未声明更少，每个都算一个 CPU。",
    )
    cures = (
        Text(
            "Give the small actors a fraction of a CPU (num_cpus=0.1), or make fewer of them",
            "给小的 actor 分配小数 CPU（num_cpus=0.1），或减少其数量",
        ),
        Text(
            "Give Ray more CPUs: ray start --num-cpus, the container's CPU limit, or more nodes; stop other "
            "jobs of the cluster",
            "给 Ray 更多 CPU：ray start --num-cpus、容器的 CPU 限额或更多节点；停掉集群上的其他作业",
        ),
    )
    confirm = (Text("ray status shows all CPUs used while GPUs are free", "ray status 显示 CPU 已用尽而 GPU 空闲"),)
