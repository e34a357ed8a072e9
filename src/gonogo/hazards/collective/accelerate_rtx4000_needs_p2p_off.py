from packaging.version import Version

from gonogo.evidence.environment.version_range import parse_version
from gonogo.hazards.facts.how_it_trains import with_trainer
from gonogo.hazards.rule import Certainty, Environment, Findings, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class AccelerateRtx4000NeedsP2pOff(LoggedHazard):
    """Several RTX 40 cards, a driver before 550.40.07, and a launcher that does not set the two variables.
    ## What happens
    `NotImplementedError: Using RTX 4000 series doesn't support faster communication broadband via P2P or IB. Please
    set NCCL_P2P_DISABLE="1" and NCCL_IB_DISABLE="1"`, when TrainingArguments or an Accelerator is made, also with
    one process where several such cards are visible.
    ## Why
    Older drivers announce peer-to-peer copies that these cards do not have, and NCCL would hang. accelerate asks
    nvidia-smi for names and driver, and refuses where the two variables are not in the environment; `accelerate
    launch` sets them itself.
    ## Example
    ```sh
    torchrun --nproc_per_node 2 train.py                                         # wrong with driver 535
    NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1 torchrun --nproc_per_node 2 train.py    # right
    ```
    ## Cure
    export NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1 before the launch, on all nodes. Or start with accelerate launch,
    which sets both; or install driver 550.40.07 or newer. Where one card is meant: CUDA_VISIBLE_DEVICES does not
    help, nvidia-smi still lists all.
    ## When it is safe
    With driver 550.40.07 or newer, with accelerate launch, or with one card visible.
    ## Sources
    - https://github.com/QwenLM/Qwen-VL/issues/447: the message with deepspeed, and the cure
    - https://github.com/cocktailpeanut/fluxgym/issues/283: with several cards of which one is used
    - https://github.com/McGill-NLP/llm2vec/issues/84: beside other errors of the same machine
    - https://github.com/huggingface/accelerate/issues/2328: why accelerate turns it off
    """

    name = "accelerate-rtx4000-needs-p2p-off"
    title = Text(
        "accelerate refuses to start on RTX 40 GPUs unless NCCL's P2P and IB are off",
        "除非关闭 NCCL 的 P2P 与 IB，accelerate 拒绝在 RTX 40 GPU 上启动",
    )
    log_words = ("RTX 4000 series",)
    ends_at = (("accelerate/state.py", "raise NotImplementedError("),)
    anywhere = True
    signs = (
        Sign(
            says=Pattern(r"RTX 4000 series doesn't support faster communication broadband"),
            types=("NotImplementedError",),
            certainty=Certainty.CERTAIN,
        ),
        Sign(says=Pattern(r"RTX 4000 series doesn't support faster communication broadband")),
    )
    cause = Text(
        "accelerate found several RTX 40 cards and a driver that announces peer-to-peer copies that they "
        "don't have, and neither NCCL_P2P_DISABLE nor NCCL_IB_DISABLE in the environment.",
        "accelerate 发现多张 RTX 40 显卡，驱动声称支持它们不具备的 P2P 拷贝，而环境中没有 NCCL_P2P_DISABLE 与"
        " NCCL_IB_DISABLE。",
    )
    cures = (
        Text(
            "export NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1 before the launch, on all nodes",
            "启动前在所有节点 export NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1",
        ),
        Text(
            "Or start with accelerate launch, which sets both; or install driver 550.40.07 or newer",
            "或用 accelerate launch 启动（会自动设置）；或安装 550.40.07 或更新的驱动",
        ),
        Text(
            "Where one card is meant: CUDA_VISIBLE_DEVICES does not help, nvidia-smi still lists all",
            "若只想用一张卡：CUDA_VISIBLE_DEVICES 不起作用，nvidia-smi 仍会列出全部",
        ),
    )
    confirm = Text(
        "nvidia-smi shows RTX 40 cards and a driver before 550.40.07",
        "nvidia-smi 显示 RTX 40 显卡与低于 550.40.07 的驱动",
    )

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """Several such cards, an older driver, and a launcher other than accelerate's."""
        launch = run.launch
        cards = [gpu.name for gpu in environment.gpus if "RTX 40" in gpu.name]
        driver = parse_version(environment.driver.string or "")
        if launch is None or launch.launcher == "accelerate" or len(environment.gpus) < 2 or not cards:
            return
        if driver is None or driver >= Version("550.40.07") or with_trainer(run) is not True:
            return
        names = ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE")
        if all(not launch.variable(name).absent or environment.variable(name).known for name in names):
            return
        yield self.finding(
            Text(
                "{count} {card} with driver {driver}: accelerate refuses to start unless NCCL_P2P_DISABLE and "
                "NCCL_IB_DISABLE are set.",
                "{count} 张 {card}，驱动 {driver}：未设置 NCCL_P2P_DISABLE 与 NCCL_IB_DISABLE 时 accelerate 会拒"
                "绝启动。",
            ).format(count=len(cards), card=cards[0], driver=environment.driver.string),
            certainty=Certainty.LIKELY,
            cure=self.cures[:2],
            spans=launch.place.span(),
        )
