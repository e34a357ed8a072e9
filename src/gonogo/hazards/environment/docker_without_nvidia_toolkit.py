from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class DockerWithoutNvidiaToolkit(LoggedHazard):
    """Docker is asked for GPUs, and knows no runtime that gives them.
    ## What happens
    "docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]]." (docker compose:
    `device driver "nvidia"`), or "unknown or invalid runtime name: nvidia". No container starts.
    ## Why
    `--gpus` needs the NVIDIA Container Toolkit. It isn't installed, or Docker was not configured for it and restarted
    since, or the Docker that answers is another one: a snap, Docker Desktop or rootless, which do not see the host's
    toolkit.
    ## Example
    ```sh
    docker run --gpus all image train.sh    # wrong, before the next three
    sudo apt-get install -y nvidia-container-toolkit
    sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker
    docker run --gpus all image train.sh    # right
    ```
    ## Cure
    Install nvidia-container-toolkit, run `nvidia-ctk runtime configure --runtime=docker`, restart Docker. Replace a
    Docker of snap by Docker's own packages; `docker context use default` where Docker Desktop answers.
    ## When it is safe
    Where `docker run --rm --gpus all ubuntu nvidia-smi` lists the GPUs.
    ## Sources
    - https://github.com/NVIDIA/nvidia-docker/issues/1034: the toolkit was missing, or Docker not restarted
    - https://github.com/NVIDIA/dcgm-exporter/issues/33: installing it mended it
    - https://github.com/NVIDIA/nvidia-docker/issues/1642: a Docker of snap
    - https://github.com/eduidl/ElasticFusion-Dockerfile/issues/11: installing it mended it
    """

    name = "docker-without-nvidia-toolkit"
    title = Text("Docker knows no runtime for GPUs", "Docker 没有可用的 GPU 运行时")
    log_words = ("could not select device driver", "runtime name: nvidia", "runtime specified nvidia")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"could not select device driver \"(?:nvidia)?\" with capabilities: \[\[.*gpu"
                r"|could not select device driver with capabilities: \[\[.*gpu"
                r"|[Uu]nknown (?:or invalid )?runtime (?:name: |specified )nvidia"
            ),
            Certainty.CERTAIN,
        ),
    )
    cause = Text(
        "Docker was asked for GPUs, and the NVIDIA Container Toolkit isn't installed, or not configured, for the "
        "Docker that answers.",
        "向 Docker 请求 GPU，但应答的 Docker 没有安装或没有配置 NVIDIA Container Toolkit。",
    )
    cures = (
        Text(
            "Install nvidia-container-toolkit; sudo nvidia-ctk runtime configure --runtime=docker; sudo systemctl "
            "restart docker",
            "安装 nvidia-container-toolkit；sudo nvidia-ctk runtime configure --runtime=docker；sudo systemctl restart "
            "docker",
        ),
        Text(
            "With the toolkit installed: Docker of snap, Docker Desktop or rootless don't see it; use Docker's own "
            "packages (docker context use default)",
            "已安装工具包时：snap 版 Docker、Docker Desktop 与 rootless 看不到它；使用 Docker 官方软件包（"
            "docker context use default）",
        ),
    )
