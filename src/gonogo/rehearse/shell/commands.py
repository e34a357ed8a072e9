"""Which commands of a launch script are run for real, which are stood in for, and which are left out."""

from __future__ import annotations

from gonogo.evidence.launch.words import SHELLS

READERS = (
    *("cat", "grep", "egrep", "fgrep", "head", "tail", "wc", "jq", "awk", "gawk", "sort", "cut", "diff", "cmp"),
    *("envsubst", "md5sum", "sha1sum", "sha256sum", "tac", "paste", "column", "comm", "join", "base64"),
)
"""Programs that only read files: run for real, on the session's files where the script wrote them."""

STARTERS = ("env", "nohup", "time", "timeout", "nice", "ionice", "stdbuf", "setsid", "xargs", "unbuffer")
"""Programs that start the command after them: run for real, with the stand-ins first on PATH."""

HARMLESS = (
    *("basename", "dirname", "realpath", "readlink", "pwd", "ls", "stat", "file", "du", "df", "test", "["),
    *("echo", "printf", "true", "false", "yes", "seq", "expr", "bc", "factor", "numfmt", "cal", "tty"),
    *("tr", "rev", "nl", "fold", "fmt", "od", "hexdump", "cksum", "strings", "which", "printenv", "getconf"),
    *("uname", "arch", "whoami", "id", "groups", "nproc", "free", "uptime", "lscpu", "ps", "pgrep"),
    *("getent", "locale", "ibstat", "ibdev2netdev", "lspci", "ss", "netstat", "lsof", "lsblk", "mountpoint", "uuidgen"),
    *("mcookie", "host", "nslookup", "dig", "tput", "whereis", "logname", "findmnt", "numastat", "vmstat"),
)
"""Programs that print, and change nothing whatever they are told: run for real."""

STOOD_IN = (
    *("sed", "cp", "tee", "mktemp", "git", "find", "pip", "pip3", "nvidia-smi", "npu-smi", *SHELLS[:3]),
    *("date", "hostname", "ip", "ifconfig", "gcc", "nvcc", "uniq", "shuf", "openssl"),
)
"""Programs whose effect a script may need, taken over by :mod:`gonogo.rehearse.shell.stand_in`."""

PASSED_THROUGH = frozenset({"srun", "sudo", "uv", "poetry", "pdm", "pipenv", "conda", "mamba", "micromamba", "numactl"})
"""Programs that start the command among their arguments somewhere else: left out, and that command is taken."""

PYTHONS = ("python", "python2", "python3", *(f"python3.{minor}" for minor in range(8, 15)))

HARMLESS_MODULES = frozenset({"json.tool", "site", "sysconfig", "platform", "base64", "calendar"})
"""``python -m NAME`` that only prints: run for real."""
