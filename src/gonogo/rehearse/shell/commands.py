"""Programs in a launch script that are replaced or skipped. All others really run, in the script's world.

Programs that fail because they can't reach another machine are detected by means of the kernel (``unreached.py``).
The names here avoid a second run of the script, and are needed if the kernel doesn't report: under Landlock, without
confinement, behind a proxy on this machine, and for installers, which fail before they connect.
"""

from __future__ import annotations

WRAPPER_COMMANDS = frozenset(
    {"srun", "mpirun", "mpiexec", "sudo", "doas", "uv", "poetry", "pdm", "pipenv", "hatch", "conda", "mamba",
     "micromamba", "numactl", "taskset", "singularity", "apptainer"}
)  # fmt: skip
"""They start the command among their arguments elsewhere or differently: they are skipped, the command is used."""

NETWORK_COMMANDS = frozenset(
    {"wget", "curl", "aria2c", "axel", "scp", "sftp", "ssh", "ssh-copy-id", "ssh-keyscan", "ftp", "telnet", "nc",
     "ncat", "ping", "pdsh", "clush", "aws", "gsutil", "gcloud", "azcopy", "az", "s3cmd", "ossutil", "obsutil",
     "coscli", "rclone", "hdfs", "hadoop", "git-lfs"}
)  # fmt: skip
INSTALLS = frozenset(
    {"apt", "apt-get", "dpkg", "yum", "dnf", "apk", "pacman", "zypper", "brew", "snap", "npm", "cargo", "rustup"}
)
REMOTE_COMMANDS = frozenset(
    {"sbatch", "salloc", "scancel", "squeue", "qsub", "bsub", "docker", "podman", "nerdctl", "kubectl", "helm",
     "enroot", "systemctl", "service", "reboot", "shutdown", "crontab", "at", "batch"}
)  # fmt: skip
INTERACTIVE_COMMANDS = frozenset({"watch", "top", "htop", "nvtop", "nvitop", "gpustat", "vim"})
DAEMONS = frozenset({"tmux", "screen"})
"""They run commands on a terminal of their own; skipped if they can't have one (under Landlock)."""
SKIPPED = NETWORK_COMMANDS | INSTALLS | REMOTE_COMMANDS | INTERACTIVE_COMMANDS | DAEMONS
"""They succeed without output, as they would succeed on the machine that trains."""

DEVICES = frozenset({"nvidia-smi", "npu-smi"})
"""Answered for the virtual machine."""

SLEEPS = frozenset({"sleep", "usleep"})
"""They return immediately."""

ARGUMENT_DEPENDENT_COMMANDS = frozenset({"git", "pip", "pip3", "tail", "rsync"})
"""Skipped if their arguments need a network or make them run forever; otherwise they really run."""

GIT_NETWORK_SUBCOMMANDS = frozenset({"clone", "fetch", "pull", "push", "ls-remote", "submodule", "lfs"})
PIP_READ_ONLY_SUBCOMMANDS = frozenset({"list", "show", "freeze", "--version", "-V", "check", "cache", "config"})

HARMLESS_MODULES = frozenset({"json.tool", "site", "sysconfig", "platform", "base64", "calendar"})
"""``python -m NAME`` for modules that only print: they really run."""

REPLACED = WRAPPER_COMMANDS | (SKIPPED - DAEMONS) | DEVICES | SLEEPS | ARGUMENT_DEPENDENT_COMMANDS | {"scontrol"}
"""By file name; Python and scripts with a Python shebang are replaced as well."""
