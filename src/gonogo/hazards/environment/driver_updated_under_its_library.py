from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class DriverUpdatedUnderItsLibrary(LoggedHazard):
    """The driver was updated, and the kernel still runs the older one.
    ## What happens
    "Failed to initialize NVML: Driver/library version mismatch" from nvidia-smi; the same from nvidia-container-cli,
    which then starts no container, and from pynvml: "RM has detected an NVML/RM version mismatch". PyTorch sees no
    GPU. What runs already goes on.
    ## Why
    A package manager (often an unattended upgrade of the night) put the libraries of a newer driver on the disk. The
    kernel's module is loaded until the machine is started anew, and libraries talk to a module of their own version
    only.
    ## Example
    ```sh
    cat /proc/driver/nvidia/version                 # 550.90.07: what the kernel runs
    ls /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.*  # 550.107.02: wrong, until a reboot
    ```
    ## Cure
    Reboot; or stop all that uses the GPUs and reload the modules (nvidia_uvm, nvidia_drm, nvidia_modeset, nvidia). Hold
    the driver's packages: `apt-mark hold 'nvidia-driver-*' 'libnvidia-*'`. In a container that brings its own
    libnvidia-ml: remove it, the host's is mounted.
    ## When it is safe
    Where both versions are the same.
    ## Sources
    - https://github.com/NVIDIA/nvidia-container-toolkit/issues/394: a container does not start; a reboot mended it
    - https://github.com/oddmario/NVIDIA-Ubuntu-Driver-Guide/issues/4: which versions, after a minor update
    - https://github.com/NVIDIA/deepops/issues/1186: a reboot mended it
    - https://github.com/illinois-scicomp/machine-shop-maintenance/issues/60: a shared machine
    """

    name = "driver-updated-under-its-library"
    title = Text(
        "NVIDIA's libraries and the loaded kernel driver are of two versions", "NVIDIA 的库与已加载的内核驱动版本不一致"
    )
    log_words = ("ibrary version mismatch", "LibRmVersionMismatch", "NVML/RM version")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"(?i)(?:NVML|nvml error|nvidia)[^\n]{0,40}: driver/library version mismatch"
                r"|NVMLError_LibRmVersionMismatch|RM has detected an NVML/RM version mismatch"
            ),
            Certainty.CERTAIN,
        ),
    )
    cause = Text(
        "The libraries of NVIDIA's driver on the disk are of another version than the module that the kernel runs.",
        "磁盘上的 NVIDIA 驱动库与内核中运行的模块版本不同。",
    )
    cures = (
        Text(
            "Reboot; or stop what uses the GPUs and reload the nvidia modules",
            "重启；或停止所有使用 GPU 的程序后重新加载 nvidia 模块",
        ),
        Text(
            "So that it doesn't come again: hold the driver's packages (apt-mark hold)",
            "避免再次发生：锁定驱动软件包（apt-mark hold）",
        ),
    )
    confirm = Text(
        "cat /proc/driver/nvidia/version and the number behind libnvidia-ml.so differ",
        "cat /proc/driver/nvidia/version 与 libnvidia-ml.so 后的版本号不同",
    )
