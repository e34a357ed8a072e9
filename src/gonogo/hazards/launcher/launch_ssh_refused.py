from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class LaunchSshRefused(LoggedHazard):
    """The launcher starts the other nodes' processes by ssh, and ssh does not get in without a password.
    ## What happens
    "RuntimeError: Using hostfile at /job/hostfile but host=worker-0 was not reachable via ssh", after "Command 'ssh -o
    PasswordAuthentication=no worker-0 hostname' returned non-zero exit status 255"; or pdsh's "worker-1: Permission
    denied (publickey,password)", "Host key verification failed", "ssh exited with exit code 255".
    ## Why
    DeepSpeed's launcher (and accelerate's, and mpirun's) logs in to every host of the hostfile, the launching one too,
    and never types a password. A key that is not there, a host key not yet accepted, another user, another port, a
    container without sshd: all end in 255. `--autotuning` goes the same way to localhost.
    ## Example
    ```sh
    ssh worker-1                                        # wrong: it asks for a password
    ssh-copy-id worker-1 && ssh worker-1 hostname       # right: it prints the name and nothing else
    ```
    ## Cure
    `ssh-copy-id` to every host, also to the launching one; `--ssh_port` where sshd has another port. Where nodes may
    not ssh to one another (Slurm, Kubernetes): torchrun on every node, or, with a DeepSpeed that has it,
    `deepspeed --no_ssh --node_rank N`. On one node: no hostfile.
    ## When it is safe
    Where `ssh -o PasswordAuthentication=no HOST hostname` prints the host's name for every host.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/4907: the check of the launcher, and what it says
    - https://github.com/deepspeedai/DeepSpeed/issues/5709: localhost refuses it, in autotuning
    - https://github.com/deepspeedai/DeepSpeed/issues/1603: a cluster without ssh: start the processes another way
    - https://github.com/volcano-sh/volcano/issues/2952: the host's name is not resolved, with the same message
    """

    name = "launch-ssh-refused"
    title = Text("The launcher can't ssh to a node without a password", "启动器无法免密 ssh 到节点")
    log_words = (
        "not reachable via ssh",
        "PasswordAuthentication=no",
        "Permission denied",
        "Host key",
        "ssh exited",
        "ssh: ",
    )
    signs = (
        Sign(Pattern(r"was not reachable via ssh|Command '\[?'?ssh\b.{0,200}returned non-zero"), Certainty.LIKELY),
        Sign(Pattern(r"Permission denied \((?:publickey|password|keyboard|gssapi)"), Certainty.LIKELY),
        Sign(Pattern(r"Host key verification failed|ssh exited with exit code 255"), Certainty.LIKELY),
        Sign(Pattern(r"ssh: (?:Could not resolve hostname|connect to host)"), Certainty.POSSIBLE),
    )
    cause = Text(
        "The launcher could not log in to a host of its hostfile by ssh: there is no way in without a password, or the "
        "host is not found under that name and port.",
        "启动器无法通过 ssh 登录 hostfile 中的主机：不能免密登录，或该名称与端口下找不到主机。",
    )
    cures = (
        Text(
            "Set up keys: ssh-copy-id HOST for every host, the launching one too; test it: ssh -o "
            "PasswordAuthentication=no HOST hostname",
            "配置密钥：对每台主机（包括启动所在的主机）执行 ssh-copy-id HOST；检验：ssh -o PasswordAuthentication=no "
            "HOST "
            "hostname",
        ),
        Text(
            "Without ssh between nodes: start torchrun on every node, or deepspeed --no_ssh --node_rank N there; on "
            "one "
            "node, take the hostfile away",
            "节点间不能 ssh 时：在每个节点上启动 torchrun，或 deepspeed --no_ssh --node_rank N；单节点则去掉 hostfile",
        ),
    )
    confirm = Text(
        "ssh -o PasswordAuthentication=no HOST hostname fails for a host of the hostfile",
        "对 hostfile 中的主机执行 ssh -o PasswordAuthentication=no HOST hostname 会失败",
    )
