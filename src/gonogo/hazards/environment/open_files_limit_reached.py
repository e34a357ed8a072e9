from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class OpenFilesLimitReached(LoggedHazard):
    """The process may open no more files (`ulimit -n`), and each tensor that a worker hands over is one.
    ## What happens
    "OSError: [Errno 24] Too many open files", "RuntimeError: received 0 items of ancdata", "unable to open shared
    memory object </torch_...> in read-write mode: Too many open files (24)", often after hours, and in any rank.
    ## Why
    PyTorch's worker processes hand tensors over by file descriptors ("file_descriptor" is the default strategy on
    Linux): one for each tensor that is still in use. Many workers, samples of many small tensors, batches kept in a
    list, one open file for each shard of a data set, or sockets to many ranks add up to the limit of the process:
    1024 where nobody raised it.
    ## Example
    ```sh
    torchrun --nproc_per_node 8 train.py                        # wrong where ulimit -n says 1024
    ulimit -n 65535 && torchrun --nproc_per_node 8 train.py     # right
    ```
    ## Cure
    `ulimit -n 65535` before the launch (containers: `--ulimit nofile=65535`; Slurm: the limit of the shell that
    submits), or `torch.multiprocessing.set_sharing_strategy("file_system")` at the start of the program and in
    `worker_init_fn`. Keep no tensors of workers in lists: `.clone()` or `.item()` what is kept.
    ## When it is safe
    With a limit of tens of thousands, or `num_workers=0`.
    ## Sources
    - https://github.com/pytorch/pytorch/issues/973: descriptors of tensors still held; ulimit, or file_system
    - https://github.com/pytorch/pytorch/pull/34768: why "received 0 items of ancdata" means the limit of open files
    - https://github.com/pytorch/pytorch/issues/41465: a list of batches that were never copied
    """

    name = "open-files-limit-reached"
    title = Text("The limit on open files is reached", "达到打开文件数上限")
    log_words = ("ancdata", "oo many open files", "Errno 24")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"received \d+ items of ancdata|\[Errno 24\] |Too many open files \(24\)|[Tt]oo many open "
                r"files|errno: 24\b"
            ),
            Certainty.CERTAIN,
        ),
    )
    cause = Text(
        "A process has reached its limit of open files (ulimit -n). Tensors that data loader workers hand over are "
        "file descriptors too, as long as they are held.",
        "进程已达到打开文件数上限（ulimit -n）。数据加载 worker 传递的张量在被持有期间也各占一个文件描述符。",
    )
    cures = (
        Text(
            "Raise the limit where the run is started: ulimit -n 65535 (docker run --ulimit nofile=65535)",
            "在启动处提高上限：ulimit -n 65535（docker run --ulimit nofile=65535）",
        ),
        Text(
            "Or torch.multiprocessing.set_sharing_strategy('file_system') at the start of the program and in "
            "worker_init_fn",
            "或在程序开头和 worker_init_fn 中调用 torch.multiprocessing.set_sharing_strategy('file_system')",
        ),
        Text(
            "Copy what is kept of a batch (.clone(), .item()): a list of batches holds all their descriptors",
            "保留 batch 中的内容时先复制（.clone()、.item()）：保存 batch 的列表会占住全部描述符",
        ),
    )
