from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_UNKNOWN = Pattern(r"Failed to initialize NVML: Unknown Error|NVMLError_Unknown\b")


class ContainerLostItsGpus(LoggedHazard):
    """A running container is cut off from its GPUs when systemd reloads.
    ## What happens
    In a container that worked: "Failed to initialize NVML: Unknown Error" from nvidia-smi, and new processes find no
    GPU ("No CUDA GPUs are available"). On the host nvidia-smi works. Processes that hold the GPU already go on, so that
    a run fails only at its restart, or when a new worker starts.
    ## Why
    The container toolkit gives the container its devices behind the back of systemd, which owns its cgroup. At
    `systemctl daemon-reload` (any package upgrade does one) systemd sets the cgroup's devices anew, without the GPUs.
    ## Example
    ```json
    {"exec-opts": ["native.cgroupdriver=cgroupfs"]}
    ```
    ## Cure
    Start the container anew. For good: `--device /dev/nvidia0 --device /dev/nvidiactl --device /dev/nvidia-uvm …` in
    `docker run`, CDI (`--device nvidia.com/gpu=all`), or the cgroup driver cgroupfs in /etc/docker/daemon.json; in
    Kubernetes PASS_DEVICE_SPECS of the device plugin.
    ## When it is safe
    With devices handed over by `--device` or CDI, which systemd knows of.
    ## Sources
    - https://github.com/NVIDIA/nvidia-container-toolkit/issues/48: NVIDIA's notice, with cause and cures
    - https://github.com/NVIDIA/nvidia-docker/issues/1678: after days of training
    - https://github.com/NVIDIA/nvidia-docker/issues/1671: after a random time; daemon-reload shows it
    - https://github.com/NVIDIA/nvidia-container-toolkit/issues/1227: the same in 2025
    """

    name = "container-lost-its-gpus"
    title = Text("The container has lost its GPUs while it ran", "容器在运行中失去了 GPU")
    log_words = ("initialize NVML: Unknown", "NVMLError_Unknown")
    anywhere = True
    signs = (Sign(Pattern(r"Failed to initialize NVML: Unknown Error")), Sign(_UNKNOWN, Certainty.POSSIBLE))
    cause = Text(
        "NVML doesn't reach the GPUs that the container had: systemd has reloaded, and the container's cgroup lost "
        "them.",
        "NVML 无法访问容器原有的 GPU：systemd 重新加载后，容器的 cgroup 失去了这些设备。",
    )
    cures = (
        Text("Start the container anew", "重新启动容器"),
        Text(
            "For good: docker run with --device /dev/nvidia0 --device /dev/nvidiactl --device /dev/nvidia-uvm, or CDI, "
            'or native.cgroupdriver=cgroupfs in /etc/docker/daemon.json ("exec-opts")',
            "长期办法：docker run 加 --device /dev/nvidia0 --device /dev/nvidiactl --device /dev/nvidia-uvm，或使用 "
            'CDI，或在 /etc/docker/daemon.json 的 "exec-opts" 中设 native.cgroupdriver=cgroupfs',
        ),
    )
    confirm = Text(
        "nvidia-smi works on the host, and in a container that is started anew",
        "宿主机上以及重新启动的容器中 nvidia-smi 正常",
    )
