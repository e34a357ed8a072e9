from gonogo.evidence.log.failure_log import FailureLog, Found, LoggedError
from gonogo.hazards.ray._missing_nodes import whole_nodes_are_missing
from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class RayRequestExceedsNode(LoggedHazard):
    """A placement group or resource pool asks for more GPUs or CPUs than Ray's nodes have.
    ## What happens
    "Total available GPUs 2.0 is less than total desired GPUs 8", "No available node types can fulfill resource request
    {'GPU': 8.0}", "Not enough GPUs available. Requested 16 GPUs, but only 8 are available in the cluster", "The number
    of required GPUs exceeds the total number of available GPUs in the placement group", or an infeasible request that
    waits for ever.
    ## Why
    The framework's numbers of nodes and GPUs (verl: `trainer.nnodes`, `trainer.n_gpus_per_node`, 8 by default) are not
    those that Ray found. Ray counts the GPUs that are visible where `ray start` ran; a job that is still alive holds
    its GPUs, and `Total available` is then what is left.
    ## Example
    ```sh
    ray start --head --num-gpus 2 && python -m verl.trainer.main_ppo …                          # wrong: it wants 8
    ray start --head --num-gpus 2 && python -m verl.trainer.main_ppo trainer.n_gpus_per_node=2  # right
    ```
    ## Cure
    Set the framework's numbers to what `ray status` shows as free; stop older jobs (`ray stop --force`); let Ray see
    all GPUs when it starts.
    ## When it is safe
    Where nodes × GPUs a node is at most what `ray status` lists as available.
    ## Sources
    - https://github.com/verl-project/verl/issues/539: 0 available, 8 desired: another job held them
    - https://github.com/verl-project/verl/issues/5954: fewer GPUs visible than the default of 8
    - https://github.com/vllm-project/vllm/issues/26028: more GPUs than the placement group has
    - https://github.com/NVIDIA-NeMo/RL/pull/89: NeMo-RL's own check
    """

    name = "ray-request-exceeds-node"
    title = Text(
        "More GPUs or CPUs are asked of Ray than a node or the cluster has",
        "向 Ray 申请的 GPU 或 CPU 超过节点或集群所有",
    )

    log_words = (
        "less than total desired",
        "No available node types",
        "Not enough GPUs available",
        "number of required GPUs",
        "cannot be satisfied in this ray cluster",
        "infeasible",
        "placement group of specs",
    )
    ends_at = (("verl/", "_check_resource_available"),)
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"Total available (?:GPU|NPU|device)s? (?P<free>[\d.]+) is less than total desired (?:GPU|NPU"
                r"|device)s? (?P<asked>[\d.]+)"
            ),
            cause=Text(
                "{asked} GPUs are asked for (nodes × GPUs a node in the config), and {free} are free in the Ray "
                "cluster.",
                "申请了 {asked} 张 GPU（配置中节点数 × 每节点 GPU 数），而 Ray 集群中空闲 {free} 张。",
            ),
        ),
        Sign(
            Pattern(r"Not enough GPUs available\. Requested (?P<asked>\d+) GPUs, but only (?P<free>\d+)"),
            cause=Text(
                "{asked} GPUs are asked for, and {free} are available in the Ray cluster.",
                "申请了 {asked} 张 GPU，而 Ray 集群中可用 {free} 张。",
            ),
        ),
        Sign(
            Pattern(
                r"No available node types can fulfill resource request"
                r"|number of required (?:GPU|NPU|XPU|TPU|device)s exceeds the total number of available"
                r"|cannot be satisfied in this ray cluster|resource request is infeasible|[Ii]nfeasible (?:task"
                r"|resource|request|actor)"
                r"|placement group .*(?:infeasible|cannot be (?:fulfilled|scheduled))"
                r"|Current node has no GPU available|Placement group creation timed out"
            )
        ),
        Sign(
            Pattern(
                r"Waiting for creating a placement group of specs for (?:[3-9]\d|\d{3,}) seconds"
                r"|Waiting for removing a placement group of specs for (?:[3-9]\d|\d{3,}) seconds"
            ),
            Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "Ray has no node with what is asked for: fewer GPUs (or CPUs) are visible to it, or free, than "
        "the config says.",
        "Ray 没有满足请求的节点：它可见或空闲的 GPU（或 CPU）少于配置所写。",
    )
    cures = (
        Text(
            "Set the numbers to what ray status shows as free (verl: trainer.n_gpus_per_node, "
            "trainer.nnodes; NeMo-RL: cluster.gpus_per_node, cluster.num_nodes)",
            "把数目设为 ray status 显示的空闲数（verl：trainer.n_gpus_per_node、trainer.nnodes；NeMo-RL："
            "cluster.gpus_per_node、cluster.num_nodes）",
        ),
        Text(
            "Stop what holds the others: ray stop --force, older jobs; start Ray where all GPUs are visible",
            "停掉占用者：ray stop --force、旧作业；在能看到全部 GPU 的环境中启动 Ray",
        ),
    )
    confirm = (
        Text("ray status lists fewer free GPUs than the config asks for", "ray status 列出的空闲 GPU 少于配置所需"),
    )

    def sureness(self, log: FailureLog, sign: Sign, evidence: Found | LoggedError) -> Certainty | None:
        """Possible where the numbers speak for a node that never joined."""
        return Certainty.POSSIBLE if whole_nodes_are_missing(log) else sign.certainty
