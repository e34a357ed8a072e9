from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class NcclIbPeerNotAnswering(LoggedHazard):
    """A NIC sent packets to another node's NIC, and none was acknowledged.
    ## What happens
    "NCCL WARN NET/IB : Got completion from peer 10.0.0.2<38560> with status=12 opcode=0 len=0 vendor err 129 (Send)"
    (older: "with error 12"), then "NCCL error … unhandled system error" or "remote process exited or there was a
    network error".
    ## Why
    Status 12 is IBV_WC_RETRY_EXC_ERR: the queue pair was set up over TCP, and what was then sent over RDMA was not
    answered, whatever was tried again. At the first collective: the two can't reach each other by RDMA, on RoCE mostly
    since the GID that was chosen is not routed (index 0 is a link-local one), or a NIC was taken that leads elsewhere.
    After hours: a link that flaps, congestion without PFC, or the other process died, which its own log shows.
    ## Example
    ```sh
    torchrun --nnodes 2 … train.py                                            # wrong where GID 0 is not routed
    NCCL_IB_GID_INDEX=3 NCCL_IB_HCA=mlx5_0,mlx5_1 torchrun --nnodes 2 … train.py    # right, on both nodes
    ```
    ## Cure
    `show_gids` names the index of the RoCE v2 address (mostly 3): NCCL_IB_GID_INDEX on every node; NCCL_IB_HCA for the
    NICs that are cabled; NCCL_CROSS_NIC=0 where rails are not connected. Prove it with `ib_write_bw -x 3` between the
    two. Where it comes after hours: error counters of the port, PFC and ECN, NCCL_IB_TIMEOUT=22.
    ## When it is safe
    Where `ib_write_bw` runs between the same devices with the same GID index.
    ## Sources
    - https://github.com/NVIDIA/nccl/issues/426: a maintainer on what error 12 is; NCCL_IB_GID_INDEX=3 cured it
    - https://github.com/NVIDIA/nccl/issues/1664: two nodes, the GID and rails as what to look at
    - https://github.com/NVIDIA/nccl/issues/1814: the line with status=12
    - https://github.com/pytorch/pytorch/issues/81628: machines under different switches; the GID index cured it
    """

    name = "nccl-ib-peer-not-answering"
    title = Text(
        "RDMA packets to another node's NIC were never acknowledged", "发往另一节点网卡的 RDMA 报文始终没有应答"
    )
    consequence = True
    anywhere = True
    log_words = ("Got completion", "vendor err 129", "RETRY_EXC")
    signs = (
        Sign(
            Pattern(
                r"(?i)Got completion (?:from peer \S+ )?with (?:error|status)[ =]12\b|IBV_WC_RETRY_EXC_ERR"
                r"|transport retry counter exceeded"
            )
        ),
        Sign(Pattern(r"vendor err 129"), Certainty.POSSIBLE),
    )
    cause = Text(
        "NCCL's packets over InfiniBand or RoCE were not acknowledged by the other node's NIC (status 12, retries "
        "exceeded).",
        "NCCL 经 InfiniBand 或 RoCE 发出的报文没有得到对端网卡的应答（状态 12，重试次数用尽）。",
    )
    cures = (
        Text(
            "RoCE: export NCCL_IB_GID_INDEX=3 on every node (show_gids names the index of RoCE v2), and NCCL_IB_HCA "
            "with the NICs that are cabled; NCCL_CROSS_NIC=0 where rails are not connected",
            "RoCE：在每个节点 export NCCL_IB_GID_INDEX=3（show_gids 给出 RoCE v2 的编号），并用 NCCL_IB_HCA 指定已连线"
            "的网卡；"
            "rail 之间不通时 NCCL_CROSS_NIC=0",
        ),
        Text(
            "After hours of training: look at the port's error counters and the switch's PFC, and at the other node's "
            "log for a process that died first",
            "训练数小时之后才出现：查看端口错误计数与交换机 PFC，并在对端节点的日志中查找先退出的进程",
        ),
    )
    confirm = Text(
        "ib_write_bw between the two nodes with the same device and GID index fails too; with NCCL_IB_DISABLE=1 it "
        "runs",
        "两节点之间用相同设备与 GID 编号的 ib_write_bw 也失败；设 NCCL_IB_DISABLE=1 后可以运行",
    )
