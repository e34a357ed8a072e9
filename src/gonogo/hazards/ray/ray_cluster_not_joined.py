from gonogo.evidence.log.failure_log import FailureLog, Found, LoggedError
from gonogo.hazards.ray._missing_nodes import FEWER, whole_nodes_are_missing
from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class RayClusterNotJoined(LoggedHazard):
    """`ray.init` starts or finds a cluster of one node, and the other nodes' GPUs are missing.
    ## What happens
    "Total available GPUs 8.0 is less than total desired GPUs 16" with two nodes of eight; "Started a local Ray
    instance" where a cluster was meant; "Could not find any running Ray instance"; "Resource pool global_pool: 8*2
    cannot be satisfied in this ray cluster".
    ## Why
    `ray start --address HEAD:6379` did not run or failed on a node (firewall, another address, the head not up yet), or
    `ray.init()` without an address started a cluster of its own since `RAY_ADDRESS` is not set where the driver runs.
    ## Example
    ```sh
    python -m verl.trainer.main_ppo trainer.nnodes=2                                  # wrong: this node alone
    ray start --head                                                                  # right: on the first node
    ray start --address=10.0.0.1:6379                                                 # right: on the second
    RAY_ADDRESS=auto python -m verl.trainer.main_ppo trainer.nnodes=2                 # right: on the first
    ```
    ## Cure
    On each further node `ray start --address=HEAD_IP:6379`, wait until `ray status` on the head lists all nodes, then
    start the driver on the head with `RAY_ADDRESS=auto` (or `ray job submit`).
    ## When it is safe
    On one node.
    ## Sources
    - https://github.com/verl-project/verl/issues/2515: 8 GPUs available of 16: the second node had not joined
    - https://docs.ray.io/en/latest/cluster/vms/user-guides/launching-clusters/on-premises.html: how nodes join a
      cluster by hand
    - https://github.com/NVIDIA-NeMo/RL/pull/89: the same check in NeMo-RL
    """

    name = "ray-cluster-not-joined"
    title = Text("Ray sees only a part of the nodes", "Ray 只看到部分节点")

    ends_at = (("", "_check_resource_available"),)
    log_words = (
        "less than total desired",
        "Not enough GPUs available",
        "running Ray instance",
        "cannot be satisfied in this ray",
        "connect to GCS",
        "Ray cluster at",
        "Started a local Ray instance",
    )
    anywhere = True
    signs = (
        Sign(
            FEWER,
            cause=Text(
                "As many GPUs are free as one node has, and several nodes are asked for: the others have not "
                "joined this Ray cluster.",
                "空闲 GPU 恰为一个节点的数目，而申请了多个节点：其余节点没有加入这个 Ray 集群。",
            ),
        ),
        Sign(Pattern(r"Resource pool \S+ \d+\*(?:[2-9]|[1-9]\d)\s*cannot be satisfied in this ray cluster")),
        Sign(
            Pattern(
                r"Could not find any running Ray instance|Failed to connect to Ray cluster|[Uu]nable to connect to GCS"
                r"|Failed to connect to GCS"
                r"|Ray expects this IP address to be either the GCS address or one of the Raylet"
                r"|Can't find a `?node_ip_address\.json|ray client connection timeout|Failed to get cluster ID from GCS"
            )
        ),
    )
    cause = Text(
        "The driver is not connected to the Ray cluster that the nodes were to form.",
        "驱动没有连上各节点本应组成的 Ray 集群。",
    )
    cures = (
        Text(
            "On every further node: ray start --address=HEAD_IP:6379; wait until ray status on the head "
            "lists all nodes",
            "在其余每个节点：ray start --address=HEAD_IP:6379；等 head 上的 ray status 列出全部节点",
        ),
        Text(
            "Start the driver with RAY_ADDRESS=auto on the head, so that ray.init does not make a cluster of its own",
            "在 head 上以 RAY_ADDRESS=auto 启动驱动，使 ray.init 不会另起集群",
        ),
    )
    confirm = (
        Text(
            "ray status on the head lists fewer nodes than were meant to join",
            "head 上的 ray status 列出的节点少于应加入的数目",
        ),
    )

    def sureness(self, log: FailureLog, sign: Sign, evidence: Found | LoggedError) -> Certainty | None:
        """Numbers of GPUs count where it is whole nodes that are missing; else they make it possible."""
        if sign.says is not FEWER:
            return sign.certainty
        return Certainty.LIKELY if whole_nodes_are_missing(log) else Certainty.POSSIBLE
