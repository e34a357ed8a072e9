"""Files and folders with credentials, which are hidden from confined programs."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterator

_SECRETS_IN_HOME = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config/gcloud", ".config/gh", ".config/hub", ".netrc",
    "_netrc", ".git-credentials", ".config/git/credentials", ".pypirc", ".npmrc", ".config/pip", ".pip",
    ".password-store", ".local/share/keyrings", ".mozilla", ".config/google-chrome", ".config/chromium", ".thunderbird",
    ".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".huggingface/token", ".modelscope/credentials",
    ".config/wandb", ".config/swanlab", ".swanlab/.netrc", ".comet.config", ".neptune", ".kaggle", ".boto", ".s3cfg",
    ".config/rclone", ".cargo/credentials", ".cargo/credentials.toml", ".terraform.d", ".vault-token", ".pgpass",
    ".my.cnf", ".bash_history", ".zsh_history", ".python_history", ".histfile",
)  # fmt: skip
_SECRET_PATH_VARIABLES = (
    "HF_TOKEN_PATH", "NETRC", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "GOOGLE_APPLICATION_CREDENTIALS",
    "KUBECONFIG", "DOCKER_CONFIG", "PIP_CONFIG_FILE", "GNUPGHOME", "XAUTHORITY",
)  # fmt: skip
"""Environment variables that name a file or folder of credentials."""
_SECRETS_IN_HF_HOME = ("token", "stored_tokens")
_SYSTEM_SECRETS = (
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssl/private", "/etc/krb5.keytab",
    "/etc/sudoers", "/etc/sudoers.d", "/etc/kubernetes", "/etc/rancher", "/etc/wireguard", "/etc/openvpn",
    "/etc/NetworkManager/system-connections", "/var/lib/kubelet", "/var/lib/docker", "/var/spool/cron", "/var/mail",
)  # fmt: skip
"""Further credentials, hidden if gonogo runs as root."""
_HOST_KEYS = "/etc/ssh"


def secret_places() -> Iterator[str]:
    """Absolute paths where the user's credentials may be, whether they exist or not."""
    for home in _home_folders():
        for name in _SECRETS_IN_HOME:
            yield os.path.join(home, name)
    for variable in _SECRET_PATH_VARIABLES:
        value = os.environ.get(variable)
        if value and os.path.isabs(value):
            yield value
    hf_home = os.environ.get("HF_HOME")
    if hf_home:
        for name in _SECRETS_IN_HF_HOME:
            yield os.path.abspath(os.path.join(hf_home, name))
    if os.geteuid() == 0:
        yield from _SYSTEM_SECRETS
        for name in _list_folder(_HOST_KEYS):
            if name.startswith("ssh_host_") and not name.endswith(".pub"):
                yield os.path.join(_HOST_KEYS, name)


def _home_folders() -> list[str]:
    """The user's home folder, by $HOME and by the user database, and other home folders that can be entered."""
    homes = [os.path.expanduser("~")]
    with contextlib.suppress(KeyError):
        homes.append(pwd.getpwuid(os.geteuid()).pw_dir)
    homes += ["/root", *(os.path.join("/home", name) for name in _list_folder("/home"))]
    return [home for home in dict.fromkeys(homes) if os.path.isabs(home) and os.access(home, os.X_OK)]


def _list_folder(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
