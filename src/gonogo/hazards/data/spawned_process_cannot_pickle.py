from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_SAID = Pattern(
    r"[Cc]an(?:'|no)t pickle (?:local (?:object|function)|<function|<lambda>|'?\w[\w.]{0,60}'? object|<class|<module)"
    r"|[Cc]an't get (?:local object|attribute '\w+' on <module '__main__')"
)
_SPAWNS = ("popen_spawn", "popen_forkserver", "multiprocessing/spawn.py", "multiprocessing\\spawn.py")


class SpawnedProcessCannotPickle(LoggedHazard):
    """What a started process is to be given cannot be pickled.
    ## What happens
    "AttributeError: Can't pickle local object 'get_loader.<locals>.worker_init_fn'", "TypeError: cannot pickle
    '_thread.lock' object", where a DataLoader's workers start, or in `mp.spawn` and Lightning's ddp_spawn; then
    "EOFError: Ran out of input" in the other process.
    ## Why
    Windows and macOS spawn processes, and so does a program that chose `spawn` for CUDA's sake: everything that the new
    process gets goes through pickle (data set, collator, worker_init_fn, model, arguments). Lambdas, functions within
    functions, open files, locks, loggers and database handles don't.
    ## Example
    ```python
    DataLoader(data, num_workers=4, collate_fn=lambda b: collate(b, tokenizer))                # wrong where it spawns
    DataLoader(data, num_workers=4, collate_fn=functools.partial(collate, tokenizer=tokenizer))    # right
    ```
    ## Cure
    Move the function to the module's top, bind arguments with functools.partial; open handles in the worker. Or
    `num_workers=0`; on Linux `multiprocessing_context="fork"`; in Lightning strategy "ddp" instead of "ddp_spawn".
    ## When it is safe
    On Linux, where DataLoader's workers are forked unless told otherwise (Python 3.14: forkserver).
    ## Sources
    - https://github.com/k2-fsa/icefall/pull/284: a worker_init_fn within a function, under DDP
    - https://github.com/Lightning-AI/pytorch-lightning/issues/9155: ddp_spawn with several GPUs
    - https://github.com/edongdongchen/DDN/issues/4: a transform within a class's method, on Windows
    - https://docs.pytorch.org/docs/stable/data.html: what workers are given where they are spawned
    """

    name = "spawned-process-cannot-pickle"
    title = Text("A spawned process can't be given what doesn't pickle", "传给新进程的对象无法被 pickle")
    log_words = ("pickle", "Can't get local object")
    ends_at = (
        ("multiprocessing/reduction.py", "ForkingPickler("),
        ("multiprocessing\\reduction.py", "ForkingPickler("),
    )
    traces = ("ForkingPickler(file, protocol).dump(obj)",)
    signs = (
        Sign(_SAID, Certainty.LIKELY, frames=(_SPAWNS,), lines=False, outside=("torch/serialization.py",)),
        Sign(
            Pattern(r"[Cc]an't pickle local (?:object|function) '[\w.<>]+'"),
            Certainty.POSSIBLE,
            outside=("torch/serialization.py", "ray/", "cloudpickle", "dill", "joblib", "safe_open"),
        ),
    )
    cause = Text(
        "A new process (a DataLoader's worker, a rank of mp.spawn) is to be given an object that can't be pickled.",
        "要传给新进程（DataLoader 的 worker、mp.spawn 的 rank）的对象无法被 pickle。",
    )
    cures = (
        Text(
            "Move the function to the top of its module (functools.partial for its arguments), and open files, locks "
            "and databases in the worker itself",
            "把该函数移到模块顶层（参数用 functools.partial 绑定），文件、锁、数据库在 worker 内打开",
        ),
        Text(
            "Or start no such process: num_workers=0; on Linux multiprocessing_context='fork'; Lightning: "
            "strategy='ddp'",
            "或不启动这样的进程：num_workers=0；Linux 上 multiprocessing_context='fork'；Lightning：strategy='ddp'",
        ),
    )
    confirm = Text("It runs with num_workers=0", "num_workers=0 时可以运行")
