from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class RolloutServerStaleCommunicator(LoggedHazard):
    """A trainer that crashed left its weight-update group in the server; the next trainer cannot join.
    ## What happens
    Server: "Weight update group already initialized. Call close_communicator first.", or "Invocation of collective_rpc
    method failed" with "NCCL error: unhandled system error" right after "POST /init_communicator/". Trainer: the same
    NCCL error, or a time-out of the group's port 51216.
    ## Why
    TRL closes the group when the trainer ends in order (atexit). A trainer that is killed or runs out of memory does
    not, and the server keeps a communicator of which one side is dead.
    ## Example
    ```sh
    kill -9 TRAINER; accelerate launch grpo.py                                        # wrong: the old group is there
    curl -X POST http://localhost:8000/close_communicator/; accelerate launch grpo.py # right
    ```
    ## Cure
    Restart the server before starting the trainer again, or `POST /close_communicator/` to it. TRL from PR #6651 on
    closes what is stale by itself.
    ## When it is safe
    With a server that was started for this run.
    ## Sources
    - https://github.com/huggingface/trl/issues/3408: the second trainer fails until the server is restarted
    - https://github.com/huggingface/trl/pull/6651: the message, and closing the stale group
    - https://github.com/vllm-project/vllm/pull/40646: the same in vLLM's own weight transfer
    """

    name = "rollout-server-stale-communicator"
    title = Text(
        "The rollout server still holds the weight-update group of a run that is gone",
        "rollout 服务仍持有已结束运行的权重更新组",
    )

    log_words = ("already initialized", "init_communicator", "init_weight_update_group", "collective_rpc")
    ends_at = (("vllm/", "init_communicator"),)
    anywhere = True
    signs = (
        Sign(Pattern(r"[Ww]eight update group already initialized|Call close_communicator first")),
        Sign(
            Pattern(r"Invocation of (?:collective_rpc|init_communicator|init_weight_update_group) method failed"),
            beside=Pattern(r"/init_communicator|init_weight_update_group"),
            unless=Pattern(r"Duplicate GPU detected|same CUDA device|Cuda failure"),
        ),
        Sign(
            Pattern(r"NCCL error: unhandled (?:system|cuda) error"),
            frames=(("init_communicator", "init_weight_update_group"),),
            certainty=Certainty.POSSIBLE,
        ),
        Sign(
            Pattern(r"NCCL error: unhandled (?:system|cuda) error"),
            beside=Pattern(r"/init_communicator"),
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "The server could not make a new group for the weights: it still holds the one of a trainer that "
        "ended without closing it.",
        "服务无法为权重建立新的通信组：它仍持有未正常关闭的旧训练器的组。",
    )
    cures = (
        Text("Restart the rollout server, then start the trainer", "重启 rollout 服务，再启动训练器"),
        Text(
            "Or close the old group: curl -X POST http://HOST:8000/close_communicator/",
            "或关闭旧的组：curl -X POST http://HOST:8000/close_communicator/",
        ),
    )
    confirm = (
        Text(
            "An earlier trainer used this server and ended by an error; with a fresh server it works",
            "此前有训练器使用该服务并因错误结束；换成新启动的服务后正常",
        ),
    )
