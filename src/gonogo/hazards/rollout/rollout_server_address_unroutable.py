from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_GROUP_PORT = Pattern(r"(?:client socket has (?:timed out|failed to connect)|failed to connect).*[,:] ?51216\b")
_LOOPBACK = Pattern(r"connect.*\(?(?:127\.0\.0\.1|localhost)[,:] ?51216")


class RolloutServerAddressUnroutable(LoggedHazard):
    """The group that carries the weights is to meet at an address that the other side cannot reach.
    ## What happens
    "The client socket has timed out after 300000ms while trying to connect to (0.0.0.0, 51216)" (or another host and
    port 51216) in the trainer, while `/health/` and `/init_communicator/` of the server answered.
    ## Why
    The HTTP port of the rollout server is one thing, the port of the weight-update group (51216 in TRL and ms-swift)
    another: the server opens it, the trainer connects to the server's *host*. 0.0.0.0 is no address to connect to from
    another machine or container; firewalls and containers often pass port 8000 alone.
    ## Example
    ```sh
    accelerate launch grpo.py --vllm_server_host 0.0.0.0    # wrong, where the server is on another node
    accelerate launch grpo.py --vllm_server_host 10.0.0.5   # right, with port 51216 open
    ```
    ## Cure
    Give the server's real address to the trainer (`--vllm_server_host 10.0.0.5`), open the group port
    (`--vllm_server_group_port`, 51216) between them, and run containers with the host's network.
    ## When it is safe
    On one machine without containers, with 127.0.0.1 on both sides.
    ## Sources
    - https://github.com/huggingface/trl/issues/3736: the client connects to 0.0.0.0:51216
    - https://github.com/modelscope/ms-swift/issues/8053: another node's port 51216 times out
    - https://github.com/modelscope/ms-swift/issues/7091: the group port is not the server's port
    """

    name = "rollout-server-address-unroutable"
    title = Text(
        "The weight-update group's address leads nowhere from the other process", "权重更新组的地址从另一进程无法到达"
    )

    log_words = ("client socket has", "51216")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"(?:client socket has (?:timed out|failed to connect)"
                r"|failed to connect).*\(?0\.0\.0\.0[,:] ?(?P<port>\d+)\)?"
            ),
            cause=Text(
                "The trainer connects to 0.0.0.0:{port}, which is an address to listen at, not one to reach a "
                "server by.",
                "训练器在连接 0.0.0.0:{port}，而它是监听地址，不能用来到达服务。",
            ),
        ),
        Sign(_GROUP_PORT, certainty=Certainty.LIKELY, unless=_LOOPBACK),
        Sign(_GROUP_PORT, certainty=Certainty.POSSIBLE),
        Sign(
            types=("DistNetworkError", "DistStoreError", ""),
            frames=(("init_communicator",), ("StatelessProcessGroup", "TCPStore")),
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "The port of the weight-update group (not the server's HTTP port) does not answer at the address "
        "that the trainer was given.",
        "权重更新组的端口（不是服务的 HTTP 端口）在训练器得到的地址上没有应答。",
    )
    cures = (
        Text(
            "Give the trainer the server's real address (--vllm_server_host), not 0.0.0.0 or localhost "
            "across machines or containers",
            "把服务的真实地址给训练器（--vllm_server_host），跨机器或容器时不要用 0.0.0.0 或 localhost",
        ),
        Text(
            "Open the group port between both (51216, --vllm_server_group_port, group_port) and use "
            "--network=host for containers; unset http_proxy",
            "在两者之间放行组端口（51216，--vllm_server_group_port、group_port），容器使用 --network=host"
            "；取消 http_proxy",
        ),
    )
    confirm = (
        Text(
            "While the trainer waits: nc -vz HOST 51216 from its machine fails",
            "训练器等待期间，在其机器上执行 nc -vz HOST 51216 失败",
        ),
    )
