from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_TIMED_OUT = Pattern(r"ibv_modify_qp failed with (?:error )?(?:110\b|Connection timed out)")


class NcclRailsNotCrossConnected(LoggedHazard):
    """On a rail-optimized network each NIC talks to the same NIC of the other nodes only.
    ## What happens
    `ibvwrap.c NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, ... curr state INIT, next state
    RTR`, in a gather, scatter, all-to-all or at a checkpoint, where all-reduce works and training went on for
    hours.
    ## Why
    Rings and trees stay on one rail. A gather to rank 0 (checkpoints, object collectives), send and receive, or a
    pipeline's edge opens connections between any two NICs, and without a route between rails they time out.
    ## Example
    ```sh
    srun torchrun train.py                          # wrong on rails that are not connected
    NCCL_CROSS_NIC=0 srun --export=ALL torchrun train.py     # right
    ```
    ## Cure
    export NCCL_CROSS_NIC=0, so that each NIC talks to its own rail; with NCCL 2.29 or newer where it can be had.
    Otherwise the route itself: NCCL_IB_GID_INDEX (3 for RoCE v2), NCCL_IB_HCA, PFC and the switch's configuration.
    ## When it is safe
    Where every NIC reaches every other: ib_write_bw between mlx5_0 and mlx5_1 of two nodes.
    ## Sources
    - https://github.com/NVIDIA/nccl/issues/2013: 8 nodes, RoCE v2; NCCL_CROSS_NIC=0 worked
    - https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html: NCCL_CROSS_NIC
    - https://github.com/verl-project/verl/issues/726: another way in which nodes don't reach each other
    """

    name = "nccl-rails-not-cross-connected"
    title = Text(
        "NICs of different rails cannot reach each other, and NCCL crosses them",
        "不同 rail 的网卡之间不通，而 NCCL 跨 rail 通信",
    )
    log_words = ("ibv_modify_qp failed",)
    signs = (
        Sign(says=_TIMED_OUT, frames=(("checkpoint", "gather", "scatter"),)),
        Sign(
            says=_TIMED_OUT,
            beside=Pattern(r"(?i)RoCE|\brails?\b|gather|checkpoint|NCCL_CROSS_NIC|local GID index [1-9]"),
        ),
        Sign(says=_TIMED_OUT, certainty=Certainty.POSSIBLE),
    )
    cause = Text(
        "NCCL could not connect a NIC of this node with one of another node: the peer did not answer while "
        "the queue pair was set up.",
        "NCCL 无法把本节点的网卡与另一节点的网卡连接：建立队列对时对端没有应答。",
    )
    cures = (
        Text(
            "export NCCL_CROSS_NIC=0, so that each NIC talks to its own rail; with NCCL 2.29 or newer where "
            "it can be had",
            "export NCCL_CROSS_NIC=0，使每块网卡只与自己的 rail 通信；可用时升级到 NCCL 2.29 或更新",
        ),
        Text(
            "Otherwise the route itself: NCCL_IB_GID_INDEX (3 for RoCE v2), NCCL_IB_HCA, PFC and the "
            "switch's configuration",
            "否则检查路由本身：NCCL_IB_GID_INDEX（RoCE v2 为 3）、NCCL_IB_HCA、PFC 与交换机配置",
        ),
    )
    confirm = Text(
        "The device that is named (mlx5_N) and the remote GID belong to different rails",
        "所指设备（mlx5_N）与远端 GID 属于不同 rail",
    )
