from gonogo.hazards.rule import Certainty, Environment, Findings, Pattern, Run, Severity, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_HIP = Pattern(
    r"invalid kernel file|hipErrorInvalidKernelFile|HIP error: invalid device function|hipErrorNoBinaryForGpu"
)
_INTEGRATED = Pattern(
    r"Radeon\(TM\) (?:\d+M )?Graphics|gfx103[5-7]|gfx90c|gfx1103|gfx1150|(?i:\bigpu\b|integrated gpu|核显)"
)


class VisibleGpuWithoutKernelsInBuild(LoggedHazard):
    """A run spreads onto an integrated or an older GPU beside the one that is meant.
    ## What happens
    `CUDA error: invalid kernel file` (`hipErrorInvalidKernelFile`), `HIP error: invalid device function`,
    `hipErrorNoBinaryForGpu` or `no kernel image is available`, on a machine with a good GPU and a second one: an
    AMD APU's "Radeon(TM) Graphics" (gfx1036), an old card for the display.
    ## Why
    `device_map="auto"`/`"balanced"`, DataParallel or a launcher with one process a device counts every visible
    device. The wheel holds code for a list of architectures (`torch.cuda.get_arch_list()`).
    ## Example
    ```sh
    python train.py                           # wrong: the integrated GPU is device 1
    HIP_VISIBLE_DEVICES=0 python train.py     # right (CUDA_VISIBLE_DEVICES on NVIDIA)
    ```
    ## Cure
    Hide that GPU: HIP_VISIBLE_DEVICES=0 or ROCR_VISIBLE_DEVICES=0 (AMD), CUDA_VISIBLE_DEVICES=0 (NVIDIA); or switch
    the integrated one off in the BIOS.
    ## When it is safe
    Where all visible GPUs are in `torch.cuda.get_arch_list()`.
    ## Sources
    - https://github.com/unslothai/unsloth/issues/8792: a gfx1036 beside an RX 7700 XT
    - https://github.com/ROCm/legacy-rocm-build/issues/3401: integrated graphics taken for the GPU to train on
    - https://github.com/pytorch/pytorch/issues/131901: the order of devices in HIP_VISIBLE_DEVICES
    """

    name = "visible-gpu-without-kernels-in-build"
    title = Text(
        "One of the visible GPUs is of an architecture that this torch has no kernels for",
        "可见 GPU 中有一张是该 torch 没有内核的架构",
    )
    log_words = (
        "invalid kernel file",
        "hipErrorInvalidKernelFile",
        "invalid device function",
        "NoBinaryForGpu",
        "gfx10",
    )
    traces = ("PyTorch install supports CUDA capabilities",)
    yields_to = ("cuda-no-kernel-image",)
    signs = (
        Sign(says=_HIP, beside=_INTEGRATED),
        Sign(says=Pattern(r"no kernel image is available"), beside=_INTEGRATED),
        Sign(says=_HIP, certainty=Certainty.POSSIBLE),
    )
    cause = Text(
        "A kernel was started on a GPU for which this torch holds no code, beside others for which it does.",
        "在该 torch 没有对应代码的 GPU 上启动了内核，而其他 GPU 是有的。",
    )
    cures = (
        Text(
            "Hide that GPU: HIP_VISIBLE_DEVICES=0 or ROCR_VISIBLE_DEVICES=0 (AMD), CUDA_VISIBLE_DEVICES=0 "
            "(NVIDIA); or switch the integrated one off in the BIOS",
            "隐藏该 GPU：HIP_VISIBLE_DEVICES=0 或 ROCR_VISIBLE_DEVICES=0（AMD）、CUDA_VISIBLE_DEVICES=0（"
            "NVIDIA）；或在 BIOS 中关闭集成显卡",
        ),
    )
    confirm = Text(
        "torch.cuda.get_device_properties(i).gcnArchName (or get_device_capability) of one of them is not in "
        "torch.cuda.get_arch_list()",
        "某张 GPU 的 torch.cuda.get_device_properties(i).gcnArchName（或 get_device_capability）不在 "
        "torch.cuda.get_arch_list() 中",
    )

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """An integrated GPU among several, and nothing that hides it."""
        integrated = [gpu.name for gpu in environment.gpus if _INTEGRATED.search(gpu.name)]
        if not integrated or len(environment.gpus) < 2 or run.launch is None:
            return
        for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
            if not run.launch.variable(name).absent or environment.variable(name).known:
                return
        yield self.finding(
            Text(
                "{gpu} is visible beside the GPU that is meant: what spreads over all devices runs into it, and "
                "torch's wheel has no kernels for integrated graphics.",
                "{gpu} 与要使用的 GPU 同时可见：扩展到所有设备的程序会用到它，而 torch 的 wheel 没有集成显卡的内核。",
            ).format(gpu=integrated[0]),
            certainty=Certainty.POSSIBLE,
            severity=Severity.WARNING,
            cure=self.cures,
            spans=run.launch.place.span(),
            confirm=self.confirm,
        )
