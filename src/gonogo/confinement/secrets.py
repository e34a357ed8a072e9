"""Where credentials lie in a home folder: programs see nothing there."""

from __future__ import annotations

import os
from collections.abc import Iterator

_IN_HOME = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config/gcloud", ".config/gh", ".config/hub", ".netrc",
    "_netrc", ".git-credentials", ".config/git/credentials", ".pypirc", ".npmrc", ".config/pip", ".pip",
    ".password-store", ".local/share/keyrings", ".mozilla", ".config/google-chrome", ".config/chromium", ".thunderbird",
    ".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".huggingface/token", ".modelscope/credentials",
    ".config/wandb", ".config/swanlab", ".swanlab/.netrc", ".comet.config", ".neptune", ".kaggle", ".boto", ".s3cfg",
    ".config/rclone", ".cargo/credentials", ".cargo/credentials.toml", ".terraform.d", ".vault-token", ".pgpass",
    ".my.cnf", ".bash_history", ".zsh_history", ".python_history", ".histfile",
)  # fmt: skip
_BY_VARIABLE = (
    "HF_TOKEN_PATH", "NETRC", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "GOOGLE_APPLICATION_CREDENTIALS",
    "KUBECONFIG", "DOCKER_CONFIG", "PIP_CONFIG_FILE", "GNUPGHOME", "XAUTHORITY",
)  # fmt: skip
"""Variables that name a file or folder of credentials."""
_IN_HF_HOME = ("token", "stored_tokens")


def secret_places() -> Iterator[str]:
    """Absolute paths of the user's credentials, those that are there and those that are not."""
    home = os.path.expanduser("~")
    for name in _IN_HOME:
        yield os.path.join(home, name)
    for variable in _BY_VARIABLE:
        value = os.environ.get(variable)
        if value and os.path.isabs(value):
            yield value
    hf_home = os.environ.get("HF_HOME")
    if hf_home:
        for name in _IN_HF_HOME:
            yield os.path.abspath(os.path.join(hf_home, name))
