from gonogo.hazards.facts.launch_facts import visible_gpus
from gonogo.hazards.rollout._served import served_gpus
from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_DUPLICATE = Pattern(r"Duplicate GPU detected")
_SYNC = Pattern(
    r"vllm_client|init_communicator|init_weight_update_group|trl vllm-serve|swift rollout|_broadcast_to_vllm"
    r"|PyNcclCommunicator\(pg\b"
)


class RolloutServerOnTrainerGpu(LoggedHazard):
    """The weight-update group has the server and the trainer as ranks, and both use the same GPU.
    ## What happens
    "Attempting to use the same CUDA device for multiple distinct roles/ranks within the same communicator" (TRL), or
    "Duplicate GPU detected : rank 0 and rank 2 both on CUDA device" and "NCCL error: invalid usage" in
    `init_communicator`.
    ## Why
    Trainer and server exchange weights by NCCL, which refuses two ranks on one GPU. Without CUDA_VISIBLE_DEVICES both
    start at GPU 0.
    ## Example
    ```sh
    trl vllm-serve --model Qwen/Qwen3-4B & accelerate launch grpo.py                  # wrong: both start at GPU 0
    CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model Qwen/Qwen3-4B &                     # right
    CUDA_VISIBLE_DEVICES=1,2,3 accelerate launch grpo.py
    ```
    ## Cure
    Give them disjoint GPUs: `CUDA_VISIBLE_DEVICES=0 trl vllm-serve …` and `CUDA_VISIBLE_DEVICES=1,2,3 accelerate launch
    …`; with one GPU, `vllm_mode="colocate"`.
    ## When it is safe
    Colocated engines in the trainer's own processes need no such group.
    ## Sources
    - https://github.com/huggingface/trl/issues/3706: client and server on cuda:0
    - https://github.com/huggingface/trl/pull/3762: TRL's check of the device
    - https://github.com/OpenRLHF/OpenRLHF/issues/726: OpenRLHF: actor rank 0 beside a vLLM worker
    - https://github.com/huggingface/open-r1/issues/571: server on GPU 0, training on all eight
    """

    name = "rollout-server-on-trainer-gpu"
    title = Text("The rollout server and the trainer sit on one GPU", "rollout 服务与训练器在同一张 GPU 上")

    log_words = ("same CUDA device", "Duplicate GPU")
    ends_at = (("trl/scripts/vllm_serve.py", "init_communicator"), ("device_communicators/pynccl", "NCCL_CHECK"))
    traces = ("NCCL error: invalid usage",)
    yields_to = ("vllm-data-parallel-same-device",)
    anywhere = True
    signs = (
        Sign(Pattern(r"Attempting to use the same (?:CUDA )?device for multiple distinct roles"), Certainty.CERTAIN),
        Sign(_DUPLICATE, beside=_SYNC),
        Sign(
            Pattern(r"NCCL error: invalid usage|ncclInvalidUsage"),
            frames=(
                ("init_communicator", "vllm_client", "init_weight_update_group", "_broadcast_to_vllm", "_init_group"),
            ),
        ),
    )
    cause = Text(
        "The trainer and the rollout server are two ranks of the group that carries the weights, and "
        "both sit on one GPU: NCCL refuses that.",
        "训练器与 rollout 服务是传输权重的通信组中的两个 rank，而二者在同一张 GPU 上：NCCL 会拒绝。",
    )
    cures = (
        Text(
            "Give them disjoint GPUs: CUDA_VISIBLE_DEVICES=0 for the server, CUDA_VISIBLE_DEVICES=1,2,3 for "
            "the trainer",
            "给二者互不重叠的 GPU：服务用 CUDA_VISIBLE_DEVICES=0，训练器用 CUDA_VISIBLE_DEVICES=1,2,3",
        ),
        Text('With one GPU for both: vllm_mode="colocate"', '若只有一张 GPU：vllm_mode="colocate"'),
    )
    confirm = (
        Text(
            "nvidia-smi shows the server's and the trainer's process on one GPU",
            "nvidia-smi 显示服务与训练进程在同一张 GPU 上",
        ),
    )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A server that the same script starts on a GPU that the trainer sees too."""
        trainers = visible_gpus(launch)
        for line, server in served_gpus(launch):
            both = sorted(set(server) & set(trainers), key=server.index) if server and trainers else []
            if not both and (server is not None or trainers is not None):
                continue
            yield self.finding(
                Text(
                    "The rollout server takes GPU {both}, and so does the trainer: NCCL refuses the group that "
                    "carries the weights.",
                    "rollout 服务使用 GPU {both}，训练器也使用它：NCCL 会拒绝传输权重的通信组。",
                ).format(both=", ".join(both) if both else "0"),
                certainty=Certainty.CERTAIN if both else Certainty.LIKELY,
                cure=self.cures,
                spans=(
                    line.place().span(),
                    launch.place.span(Text("the trainer", "训练器")),
                    launch.visible_devices.span(),
                ),
                confirm=() if both else self.confirm,
            )
