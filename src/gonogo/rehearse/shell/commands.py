"""Programs of a launch script that are not started as they are. All others run for real, in the script's world.

Of those that only reach for another machine in vain the kernel tells (``unreached.py``). The names here spare a second
run of the script, and hold where the kernel doesn't tell: under Landlock, without a confinement, behind a proxy on this
machine, and for installers, which fail before they reach out.
"""

from __future__ import annotations

WRAPPER_COMMANDS = frozenset(
    {"srun", "mpirun", "mpiexec", "sudo", "doas", "uv", "poetry", "pdm", "pipenv", "hatch", "conda", "mamba",
     "micromamba", "numactl", "taskset", "singularity", "apptainer"}
)  # fmt: skip
"""Start the command among their arguments in another place or way: that command is taken, and they are left out."""

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
"""Run what they are given behind a terminal of their own; where they can have none (Landlock), they are left out."""
SKIPPED = NETWORK_COMMANDS | INSTALLS | REMOTE_COMMANDS | INTERACTIVE_COMMANDS | DAEMONS
"""Answer nothing, and succeed: on the machine that trains they would."""

DEVICES = frozenset({"nvidia-smi", "npu-smi"})
"""Answered for the virtual machine."""

SLEEPS = frozenset({"sleep", "usleep"})
"""End at once."""

ARGUMENT_DEPENDENT_COMMANDS = frozenset({"git", "pip", "pip3", "tail", "rsync"})
"""Left out where their arguments reach for a network or never end; else run for real."""

GIT_NETWORK_SUBCOMMANDS = frozenset({"clone", "fetch", "pull", "push", "ls-remote", "submodule", "lfs"})
PIP_READ_ONLY_SUBCOMMANDS = frozenset({"list", "show", "freeze", "--version", "-V", "check", "cache", "config"})

HARMLESS_MODULES = frozenset({"json.tool", "site", "sysconfig", "platform", "base64", "calendar"})
"""``python -m NAME`` that only prints: run for real."""

REPLACED = WRAPPER_COMMANDS | (SKIPPED - DAEMONS) | DEVICES | SLEEPS | ARGUMENT_DEPENDENT_COMMANDS
"""By the file's name; beside these, Python and whatever a first line hands to Python."""
