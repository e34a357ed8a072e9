from gonogo.hazards.rule import Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class FabricManagerNotRunning(LoggedHazard):
    """CUDA does not start on GPUs with NVSwitch: no fabric manager runs.
    ## What happens
    "Error 802: system not yet initialized" from cudaGetDeviceCount, cuInit or NCCL ("Cuda failure 802"), while
    nvidia-smi lists all GPUs. A100, H100, H200 and B200 of the SXM kind; PCIe cards need no fabric manager.
    ## Why
    The GPUs register with the NVSwitch fabric before CUDA may start. The service nvidia-fabricmanager sets it up. It
    is missing from images that were made for other cards, and it refuses to start where its version isn't exactly the
    driver's: an upgrade of the driver alone stops it.
    ## Example
    ```text
    nvidia-driver 580.95.05, nvidia-fabricmanager 570.133.20    # wrong
    nvidia-driver 580.95.05, nvidia-fabricmanager 580.95.05     # right
    ```
    ## Cure
    Install nvidia-fabricmanager in exactly the driver's version, and start it: `systemctl enable --now
    nvidia-fabricmanager`. On B200 and B300 also nvlsm and the driver's NVLink 5 packages. It runs on the host: a
    container, or a rented virtual machine, cannot mend it.
    ## When it is safe
    Where `nvidia-smi -q` says "Fabric ... State: Completed, Status: Success", or the cards have no NVSwitch.
    ## Sources
    - https://github.com/pytorch/pytorch/issues/35710: the service was missing
    - https://github.com/aws-samples/aws-deep-learning-ami-ubuntu-dcv-desktop/issues/33: an image without it
    - https://github.com/ollama/ollama/issues/12136: it was of another version than the driver
    - https://github.com/gpustack/gpustack/issues/4154: a maintainer names it
    - https://github.com/huggingface/huggingface_hub/issues/4134: rented H200s that never came up
    """

    name = "fabric-manager-not-running"
    title = Text("The NVSwitch fabric is not set up, and CUDA does not start", "NVSwitch 互连尚未就绪，CUDA 无法启动")
    log_words = ("not yet initialized", "SystemNotReady", "SYSTEM_NOT_READY", "FABRIC_NOT_INITIALIZED")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"(?:Error|failure|code=|\() ?802\b.{0,30}(?:system not yet initialized|cudaErrorSystemNotReady)"
                r"|cudaErrorSystemNotReady|CUDA_ERROR_SYSTEM_NOT_READY|CUDA.{0,60}system not yet initialized"
            )
        ),
        Sign(Pattern(r"NV_WARN_FABRIC_NOT_INITIALIZED|fabric manager (?:is )?not running|Fabric Manager.*not running")),
    )
    cause = Text(
        "The NVSwitch fabric isn't ready: nvidia-fabricmanager doesn't run, or isn't of the driver's version.",
        "NVSwitch 互连未就绪：nvidia-fabricmanager 没有运行，或与驱动版本不一致。",
    )
    cures = (
        Text(
            "On the host: install nvidia-fabricmanager in exactly the driver's version, then systemctl enable --now "
            "nvidia-fabricmanager",
            "在宿主机上：安装与驱动版本完全一致的 nvidia-fabricmanager，然后 systemctl enable --now "
            "nvidia-fabricmanager",
        ),
        Text(
            "On a rented machine: take another, and report this one; nothing inside mends it",
            "租用的机器：更换一台并上报；在其内部无法修复",
        ),
    )
    confirm = Text(
        "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A2 Fabric says something else than Completed",
        "systemctl status nvidia-fabricmanager；nvidia-smi -q | grep -A2 Fabric 显示的不是 Completed",
    )
