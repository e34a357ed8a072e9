from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class RayVersionMismatch(LoggedHazard):
    """A process joins a Ray cluster that another Ray or another Python started.
    ## What happens
    "Version mismatch: The cluster was started with: Ray: 2.12.0 Python: 3.11.11 This process on node … was started
    with: Ray: 2.42.0 Python: 3.9.21".
    ## Why
    Ray moves Python objects between processes by pickle, and checks at `ray.init` and `ray start --address` that both
    sides have the same Ray and the same Python, patch version included. A cluster left from another environment
    (`ray.init()` finds it by itself), a node with another image, or a second conda environment all give this.
    ## Example
    ```sh
    ray start --head                                     # wrong: from base, the training runs in conda's "rl"
    conda activate rl && ray start --head                # right
    ```
    ## Cure
    Stop the old cluster (`ray stop --force` on all nodes) and start it from the environment that trains; use the same
    image on all nodes.
    ## When it is safe
    A difference in the patch version of Python alone can be let through with `RAY_IGNORE_VERSION_MISMATCH=1`.
    ## Sources
    - https://github.com/Unakar/Logic-RL/issues/30: GRPO with Ray 2.12 on the cluster and 2.42 in the process
    - https://github.com/ray-project/ray/issues/44063: 3.10.13 against 3.10.12
    - https://github.com/ray-project/ray/issues/49912: what Ray compares, and RAY_IGNORE_VERSION_MISMATCH
    """

    name = "ray-version-mismatch"
    title = Text(
        "The process and the Ray cluster have different Ray or Python versions",
        "进程与 Ray 集群的 Ray 或 Python 版本不同",
    )

    log_words = ("Version mismatch: The cluster was started",)
    traces = ("check_version_info(cluster_metadata",)
    anywhere = True
    signs = (
        Sign(Pattern(r"Version mismatch: The cluster was started with"), Certainty.CERTAIN),
        Sign(Pattern(r"This process on node \S+ was started with:"), Certainty.LIKELY),
        Sign(
            types=("RuntimeError", ""), frames=(("ray/_private/",), ("check_version_info",)), certainty=Certainty.LIKELY
        ),
    )
    cause = Text(
        "Ray compares the versions of the cluster and of this process, and they differ: most often a "
        "cluster of another environment is still running, or one node has another image.",
        "Ray 会比较集群与本进程的版本，二者不同：多为另一环境的集群仍在运行，或某个节点的镜像不同。",
    )
    cures = (
        Text(
            "ray stop --force on all nodes, then ray start from the environment that trains",
            "在所有节点执行 ray stop --force，再从训练所用的环境执行 ray start",
        ),
        Text(
            'Give all nodes the same Ray and the same Python; python -c "import ray, sys; '
            'print(ray.__version__, sys.version)" shows them',
            '让所有节点的 Ray 与 Python 一致；python -c "import ray, sys; print(ray.__version__, sys.version)" 可查看',
        ),
    )
    confirm = (Text("The versions on the lines below the message differ", "该消息下方各行给出的版本不同"),)
