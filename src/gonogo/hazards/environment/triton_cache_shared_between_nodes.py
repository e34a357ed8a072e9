from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Severity, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_LOST = Pattern(
    r"(?:No such file or directory|Directory not empty|File exists).{0,40}(?:\.triton|torchinductor_|/triton/cache)"
)


class TritonCacheSharedBetweenNodes(LoggedHazard):
    """The cache of compiled kernels lies on NFS or Lustre, and ranks replace each other's files.
    ## What happens
    On a few ranks of the first run: `OSError: [Errno 116] Stale file handle`, `[Errno 16] Device or resource busy:
    '.../cuda_utils.cpython-310-x86_64-linux-gnu.so'`, `FileNotFoundError: ... .triton/cache/...`, `Text file busy`.
    ## Why
    Triton writes a file under another name and renames it. On a local disk that is atomic; on a network file system
    another node may hold the old one open. The default is `~/.triton/cache` and `/tmp/torchinductor_$USER`, and a
    home is often shared.
    ## Example
    ```sh
    export TRITON_CACHE_DIR=/shared/cache/triton                       # wrong on several nodes
    export TRITON_CACHE_DIR=/tmp/triton_${SLURM_NODEID:-0}             # right: on the node's own disk
    ```
    ## Cure
    Put TRITON_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR on a local disk (/tmp), by node or by rank. Or run once on one
    rank to fill the cache, then start all.
    ## When it is safe
    On one node, or on a local disk.
    ## Sources
    - https://github.com/pytorch/pytorch/issues/173679: stale handle and busy file on 3 of 32 ranks
    - https://github.com/triton-lang/triton/issues/2688: the Triton cache with several processes
    - https://github.com/PrimeIntellect-ai/prime-rl/pull/2305: a shared home on NFS, and the cure
    - https://github.com/triton-lang/triton/issues/11512: EBUSY and files that vanish, on a network file system
    """

    name = "triton-cache-shared-between-nodes"
    title = Text(
        "Ranks of several nodes write one Triton or Inductor cache on a shared file system",
        "多个节点的 rank 写入共享文件系统上的同一个 Triton 或 Inductor 缓存",
    )
    log_words = ("Stale file handle", "Device or resource busy", "Text file busy", ".triton/cache", "torchinductor_")
    ends_at = (("triton/runtime/cache.py", "os.replace("), ("torch/_inductor/compile_fx.py", "raise InductorError("))
    signs = (
        Sign(
            says=Pattern(r"(?:Stale file handle|Device or resource busy|Text file busy)"),
            beside=Pattern(r"(?i)triton|inductor|cuda_utils|__triton_launcher"),
        ),
        Sign(says=_LOST, types=("FileNotFoundError", "OSError", "FileExistsError"), certainty=Certainty.POSSIBLE),
    )
    cause = Text(
        "A rank lost a file of the cache of compiled kernels to another rank: the folder is on a file system "
        "that nodes share.",
        "某个 rank 的编译内核缓存文件被另一个 rank 换掉：该目录位于节点共享的文件系统上。",
    )
    cures = (
        Text(
            "Put TRITON_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR on a local disk (/tmp), by node or by rank",
            "把 TRITON_CACHE_DIR 与 TORCHINDUCTOR_CACHE_DIR 放到本地磁盘（/tmp），按节点或 rank 分开",
        ),
        Text(
            "Or run once on one rank to fill the cache, then start all",
            "或先用一个 rank 运行一次以填充缓存，再全部启动",
        ),
    )
    confirm = Text(
        "df -T of the cache's folder says nfs, lustre, gpfs or the like",
        "对缓存目录执行 df -T，显示 nfs、lustre、gpfs 等",
    )

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A cache folder that several nodes are given under one path outside of /tmp."""
        nodes = launch.nodes.number
        if nodes is None or nodes < 2:
            return
        for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
            folder = launch.variable(name)
            if folder.string and not folder.string.startswith(("/tmp", "/dev/shm", "/local", "/scratch/local")):
                yield self.finding(
                    Text(
                        "{nodes} nodes keep compiled kernels in {folder}: where that is a shared file system, ranks "
                        "replace each other's files.",
                        "{nodes} 个节点把编译内核存放在 {folder}：若它是共享文件系统，各 rank 会互相替换文件。",
                    ).format(nodes=nodes, folder=folder.string),
                    certainty=Certainty.POSSIBLE,
                    severity=Severity.WARNING,
                    cure=self.cures[:1],
                    spans=folder.span(),
                    confirm=self.confirm,
                )
