from gonogo.evidence.log.stall import STALL_WORDS
from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_SCORING = (
    "compute_score",
    "reward_score",
    "reward_manager",
    "math_verify",
    "_calculate_rewards",
    "compute_reward",
    "reward_fn(",
    "rewards.py",
)
_WAITING = (
    "subprocess.py",
    "socket.py",
    "selectors.py",
    "sympy",
    "requests/",
    "ssl.py",
    "in communicate",
    "math_verify",
    "threading.py",
)
_DUMPED = Pattern(
    r"^\s*(?:File \"[^\"]+\", line \d+,? in |\w.*)(?:compute_score|math_verify|normalize_final_answer"
    r"|\w*_reward(?:_func)?|compute_reward)\b(?: \(|$)"
)
_STANDS_STILL = Pattern(
    r"Watchdog caught collective|collective operation timeout|0% +Default|GPU-Util.* 0%|\bhangs?\b|stuck"
)


class RewardScoringNeverReturns(LoggedHazard):
    """A reward without a time limit hangs on one sample: in sympy, in code that it runs, in a request.
    ## What happens
    GPUs fall to 0 % after some steps and stay there; a stack dump or Ctrl-C shows the driver in `compute_score`,
    `math_verify`, `sympy`, `subprocess` or `requests`; other ranks time out in a collective.
    ## Why
    Rewards are computed one sample after another in the driver or rank. sympy can take hours to simplify a degenerate
    answer; code that a model wrote loops; a judge's endpoint does not answer. Nothing ends it.
    ## Example
    ```python
    score = verify(gold, parse(answer))                                     # wrong: may never return
    score = pool.submit(verify, gold, parse(answer[-512:])).result(10)      # right: a process pool, and a limit
    ```
    ## Cure
    Give each scoring a time limit in a process of its own (ProcessPoolExecutor with timeout; verl's PrimeRewardManager,
    or the per-sample timeout of newer NaiveRewardManager), bound the length of what is parsed, and pass `timeout=` to
    requests.
    ## When it is safe
    Where every call of the reward has a limit that is enforced from outside.
    ## Sources
    - https://github.com/verl-project/verl/pull/6673: a dump showed the driver in compute_score
    - https://github.com/ganler/code-r1/issues/7: code execution that hangs
    - https://github.com/verl-project/verl/issues/2909: GPUs at 0 % from step 0
    """

    name = "reward-scoring-never-returns"
    title = Text("The reward function does not return, and all GPUs wait", "奖励函数不返回，所有 GPU 空等")

    log_words = (*STALL_WORDS, "compute_score", "math_verify", "reward_score", "KeyboardInterrupt", "Timeout 0:")
    anywhere = True
    signs = (
        Sign(types=("KeyboardInterrupt", "GetTimeoutError", "TimeoutError", "TimeoutException"), frames=(_SCORING,)),
        Sign(types=("",), frames=(_SCORING, _WAITING)),
        Sign(_DUMPED, beside=_STANDS_STILL),
        Sign(
            _DUMPED, certainty=Certainty.POSSIBLE, beside=Pattern(r"most recent call first|py-spy|Thread 0x|GPU-Util")
        ),
    )
    cause = Text(
        "Where it was interrupted or dumped, the process was in the reward function, which nothing ends: "
        "all GPUs wait for its score.",
        "被中断或转储时，进程停在奖励函数中，而没有什么会结束它：所有 GPU 都在等待其得分。",
    )
    cures = (
        Text(
            "Run each scoring with a time limit in a process of its own, and count a time-out as no reward",
            "每次打分在单独的进程中限时执行，超时按无奖励处理",
        ),
        Text(
            "Bound the length of the answer that is parsed; give requests and subprocesses a timeout",
            "限制所解析答案的长度；给请求与子进程设置超时",
        ),
    )
    confirm = (
        Text(
            "py-spy dump --pid of the driver shows the reward function twice, minutes apart",
            "间隔数分钟两次对驱动执行 py-spy dump --pid，都停在奖励函数中",
        ),
    )
