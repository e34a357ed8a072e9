from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class MasterAddressNotResolved(LoggedHazard):
    """The processes are to meet at a host's name that this machine can't turn into an address.
    ## What happens
    "ValueError: host not found: Name or service not known", "socket.gaierror: [Errno -2] Name or service not known" in
    rendezvous, or line after line "[c10d] The IPv6 network addresses of (node-0, 29500) cannot be retrieved (gai error:
    -2 - Name or service not known)", and then a time-out.
    ## Why
    MASTER_ADDR, --master_addr or --rdzv_endpoint names a host that neither DNS nor /etc/hosts of this node knows; the
    pod's service is not there yet; or it is torchrun itself that takes the machine's own name (`hostname -f`) and hands
    it to the workers, in a container whose name is not in its /etc/hosts.
    ## Example
    ```sh
    torchrun --nnodes 2 --master_addr node-0 train.py       # wrong, where node-1 does not know node-0
    torchrun --nnodes 2 --master_addr 10.0.0.5 train.py     # right: an address that every node reaches
    ```
    ## Cure
    Name an IP address, or put the name into every node's /etc/hosts. On one machine: `torchrun --standalone` with
    `127.0.0.1 $(hostname)` in /etc/hosts, or `--master_addr 127.0.0.1`; with `--rdzv_backend c10d` also
    `--local_addr ADDRESS`.
    ## When it is safe
    The warning alone does no harm where the IPv4 address is found: the run goes on.
    ## Sources
    - https://github.com/nyu-systems/Grendel-GS/issues/9: the machine's own name was not in /etc/hosts
    - https://github.com/hpcaitech/ColossalAI/issues/2841: the same; --standalone --master_addr localhost
    - https://github.com/pytorch/examples/issues/540: host not found, in the env:// rendezvous
    - https://github.com/pytorch/pytorch/issues/150532: nodes whose names only they themselves can resolve
    """

    name = "master-address-not-resolved"
    title = Text("The master's host name is not resolved", "主节点的主机名无法解析")
    log_words = ("host not found", "gai error", "gaierror", "Name or service not known")
    signs = (
        Sign(Pattern(r"host not found: "), Certainty.LIKELY, types=("ValueError", "RuntimeError")),
        Sign(
            Pattern(r"Name or service not known|name resolution|nodename nor servname"),
            Certainty.LIKELY,
            types=("gaierror",),
            lines=False,
            frames=(("rendezvous", "distributed_c10d", "elastic/"),),
        ),
        Sign(Pattern(r"network addresses of \(.{1,200}\) cannot be retrieved \(gai error"), Certainty.POSSIBLE),
    )
    cause = Text(
        "The host's name at which the processes are to meet can't be turned into an address on this node.",
        "各进程会合所用的主机名在该节点上无法解析为地址。",
    )
    cures = (
        Text(
            "Give an IP address that every node reaches (--master_addr, --rdzv_endpoint, MASTER_ADDR), or add the name "
            "to /etc/hosts on every node",
            "使用各节点都能到达的 IP 地址（--master_addr、--rdzv_endpoint、MASTER_ADDR），或在每个节点的 /etc/hosts "
            "中加入该"
            "名称",
        ),
        Text(
            "On one machine: --master_addr 127.0.0.1, or add its own name: echo 127.0.0.1 $(hostname) >> /etc/hosts",
            "单机：--master_addr 127.0.0.1，或加入本机名称：echo 127.0.0.1 $(hostname) >> /etc/hosts",
        ),
    )
    confirm = Text(
        "getent hosts NAME prints nothing on the node that complains", "在报错的节点上 getent hosts 主机名 没有输出"
    )
