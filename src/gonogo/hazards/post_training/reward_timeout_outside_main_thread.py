from gonogo.hazards.rule import Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class RewardTimeoutOutsideMainThread(LoggedHazard):
    """math_verify and home-made limits use `signal.alarm`, which Python allows in the main thread only.
    ## What happens
    "ValueError: signal only works in main thread of the main interpreter"; or no error at all, and every math reward is
    0.
    ## Why
    `signal.signal` and `signal.alarm` raise outside of the main thread. Ray actors with concurrency, thread pools and
    asynchronous reward managers run the function in other threads; a broad `except` turns the error into reward 0.
    ## Example
    ```python
    verify(gold, answer)                          # wrong in a Ray actor with concurrency: it calls signal.alarm
    verify(gold, answer, timeout_seconds=None)    # right
    ```
    ## Cure
    Call math_verify with `parsing_timeout=None` and `timeout_seconds=None` and limit the time by a process pool; or run
    the reward in the main thread of a process.
    ## When it is safe
    In the main thread of a process.
    ## Sources
    - https://github.com/verl-project/verl/pull/5635: math_verify in Ray's reward workers
    - https://docs.python.org/3/library/signal.html: signals and threads
    """

    name = "reward-timeout-outside-main-thread"
    title = Text(
        "The reward's time limit uses a signal outside of the main thread", "奖励函数的限时在非主线程中使用信号"
    )

    log_words = ("signal only works in main thread",)
    anywhere = True
    signs = (Sign(Pattern(r"signal only works in (?:the )?main thread")),)
    cause = Text(
        "A time limit by signal.alarm was set in a thread that is not the main one: Python refuses.",
        "在非主线程中用 signal.alarm 设置时限：Python 会拒绝。",
    )
    cures = (
        Text(
            "math_verify: turn off its own limits (parsing_timeout, timeout_seconds) and limit the time by a "
            "process pool",
            "math_verify：关闭其自带时限（parsing_timeout、timeout_seconds），改用进程池限时",
        ),
    )
    confirm = (
        Text(
            "The frames above show the reward function, called from a thread or an actor's method",
            "上方栈帧显示奖励函数在某个线程或 actor 方法中被调用",
        ),
    )
