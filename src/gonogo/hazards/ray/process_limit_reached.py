from gonogo.hazards.rule import Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class ProcessLimitReached(LoggedHazard):
    """No more threads may be started (`ulimit -u`, the pids limit), and Ray, gRPC or OpenBLAS needs one.
    ## What happens
    "pthread_create failed: Resource temporarily unavailable", "thread: Resource temporarily unavailable [system:11]",
    "libgomp: Thread creation failed", "can't start new thread", "fork: retry". Ray then reports dead workers with "End
    of file" and blames memory among others.
    ## Why
    Each Ray worker starts dozens of threads (gRPC, OpenMP, BLAS), and Ray starts a worker a CPU. On machines with many
    CPUs, or in containers with a low pids limit, their number passes the limit. Memory is not short: errno 11 (EAGAIN)
    of clone() says it.
    ## Example
    ```sh
    ray start --head                                        # wrong on 192 CPUs with ulimit -u 4096
    ulimit -u 65535 && ray start --head --num-cpus 32       # right
    ```
    ## Cure
    Raise the limit (`ulimit -u 65535`; `docker run --pids-limit=-1`; the pod's pids limit), give Ray fewer CPUs (`ray
    start --num-cpus 16`), and cap the threads: `OMP_NUM_THREADS=1`, `RAY_num_server_call_thread=1`.
    ## When it is safe
    On machines where `ulimit -u` is tens of thousands and few CPUs are given to Ray.
    ## Sources
    - https://github.com/verl-project/verl/issues/719: verl: pthread_create failed, cured by ulimit -u
    - https://github.com/vllm-project/vllm/issues/6295: a cap of 4096 threads
    - https://github.com/ray-project/ray/issues/54225: Ray: thread creation on a machine with many CPUs
    - https://github.com/ray-project/ray/issues/36936: how many threads a Ray worker has
    """

    name = "process-limit-reached"
    title = Text("The limit on processes or threads is reached", "达到进程或线程数上限")

    log_words = ("pthread_create", "temporarily unavailable", "Thread creation", "start new thread", "fork: retry")
    traces = ("RLIMIT_NPROC", "Thread creation failed")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"pthread_create failed|thread: Resource temporarily unavailable|[Tt]hread creation failed"
                r"|std::system_error.*Resource temporarily unavailable|system_error.*what\(\): .*Resource temporarily"
                r"|can't start new thread|fork: retry: |fork: Resource temporarily unavailable"
                r"|blas_thread_init: pthread_create|Failed to create new thread|failed to create new OS thread"
                r"|unable to create (?:new )?native thread|Cannot fork"
            )
        ),
        Sign(Pattern(r"\[Errno 11\] Resource temporarily unavailable"), types=("BlockingIOError", "OSError")),
    )
    cause = Text(
        "The operating system refused another thread or process: the limit of the user (ulimit -u) or of "
        "the container (pids) is reached. What Ray writes afterwards of dead workers follows from that.",
        "操作系统拒绝再创建线程或进程：已达到用户（ulimit -u）或容器（pids）的上限。此后 Ray 关于 "
        "worker 死亡的信息都由此引起。",
    )
    cures = (
        Text(
            "Raise the limit where Ray is started: ulimit -u 65535; docker run --pids-limit=-1; the pod's pids limit",
            "在启动 Ray 处提高上限：ulimit -u 65535；docker run --pids-limit=-1；Pod 的 pids 上限",
        ),
        Text(
            "Give Ray fewer CPUs (ray start --num-cpus 16, ray_init.num_cpus=16) and cap threads: "
            "OMP_NUM_THREADS=1, RAY_num_server_call_thread=1",
            "给 Ray 更少的 CPU（ray start --num-cpus 16，ray_init.num_cpus=16），并限制线程："
            "OMP_NUM_THREADS=1、RAY_num_server_call_thread=1",
        ),
    )
    confirm = (
        Text(
            "ulimit -u, or cat /sys/fs/cgroup/pids.max, is near what ps -eLf | wc -l counts",
            "ulimit -u 或 cat /sys/fs/cgroup/pids.max 接近 ps -eLf | wc -l 的数目",
        ),
    )
