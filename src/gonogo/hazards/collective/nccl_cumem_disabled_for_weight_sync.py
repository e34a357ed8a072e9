from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_P2P = Pattern(r"transport/p2p\.cc:\d+ NCCL WARN Cuda failure (?:\d+ )?'(?:invalid argument|invalid resource handle)'")


class NcclCumemDisabledForWeightSync(LoggedHazard):
    """NCCL_CUMEM_ENABLE=0 in the rollout workers only: the two ends of one communicator disagree.
    ## What happens
    `transport/p2p.cc:298 NCCL WARN Cuda failure 'invalid argument'`, `unhandled cuda error` or a hang in the group
    that sends the policy's weights to vLLM (`init_collective`, `update_weights`); training and generation each work
    alone.
    ## Why
    vLLM puts NCCL_CUMEM_ENABLE=0 into its workers' environment. NCCL then shares GPU memory by legacy CUDA IPC,
    which refuses memory that the other end (or expandable segments) allocated by cuMem.
    ## Example
    ```sh
    python -m rl.train                                # wrong: vLLM's workers set it to 0 themselves
    NCCL_CUMEM_ENABLE=1 python -m rl.train            # right: the same on policy and rollout workers
    ```
    ## Cure
    Set NCCL_CUMEM_ENABLE=1 for policy and generation workers alike (in Ray's runtime env, so that vLLM finds it
    set). Or upgrade the framework (NeMo RL with pull 636) and vLLM. No expandable_segments:True in processes whose
    memory is shared.
    ## When it is safe
    Where policy and generation are on the same GPUs and share weights in another way, or all processes have the
    same value.
    ## Sources
    - https://github.com/NVIDIA-NeMo/RL/issues/564: the error, traced to the variable
    - https://github.com/NVIDIA-NeMo/RL/pull/636: the variable set on both sides
    - https://github.com/NVIDIA/nccl/issues/1838: how vLLM came to change these variables
    """

    name = "nccl-cumem-disabled-for-weight-sync"
    title = Text(
        "vLLM switches NCCL's cuMem off, and the weight-sync communicator fails on legacy IPC",
        "vLLM 关闭了 NCCL 的 cuMem，权重同步通信器在旧式 IPC 上失败",
    )
    log_words = ("transport/p2p.cc", "NCCL_CUMEM_ENABLE")
    anywhere = True
    signs = (
        Sign(
            says=_P2P,
            beside=Pattern(r"(?i)vllm|rollout|weight_sync|update_weights|init_collective|NCCL_CUMEM_ENABLE|nemo_rl"),
        ),
        Sign(says=_P2P, certainty=Certainty.POSSIBLE),
    )
    cause = Text(
        "NCCL's peer-to-peer transport failed to open the other end's memory: one end has cuMem off, as vLLM "
        "sets it in its workers.",
        "NCCL 的 P2P 传输无法打开另一端的内存：一端关闭了 cuMem，vLLM 会在其 worker 中这样设置。",
    )
    cures = (
        Text(
            "Set NCCL_CUMEM_ENABLE=1 for policy and generation workers alike (in Ray's runtime env, so that "
            "vLLM finds it set)",
            "为策略与生成 worker 一致设置 NCCL_CUMEM_ENABLE=1（写入 Ray 的 runtime env，使 vLLM 发现已设置）",
        ),
        Text(
            "Or upgrade the framework (NeMo RL with pull 636) and vLLM", "或升级框架（含 pull 636 的 NeMo RL）与 vLLM"
        ),
        Text(
            "No expandable_segments:True in processes whose memory is shared",
            "共享内存的进程不要使用 expandable_segments:True",
        ),
    )
    confirm = Text(
        "NCCL_DEBUG=INFO shows different values of NCCL_CUMEM_ENABLE on the two ends",
        "NCCL_DEBUG=INFO 显示两端的 NCCL_CUMEM_ENABLE 不同",
    )
