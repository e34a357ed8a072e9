from gonogo.evidence.log.failure_log import FailureLog, Found, LoggedError
from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_ASLEEP = Pattern(r"to fall asleep|POST /sleep|Sleep mode freed|CuMemAllocator: sleep freed")
_AWAKE = Pattern(r"to wake up|POST /wake_up")
_ILLEGAL = Pattern(r"an illegal memory access was encountered")


class RolloutEngineSleptWhileRequestsRun(LoggedHazard):
    """`sleep()` frees the engine's memory under requests that still run.
    ## What happens
    "POST /sleep" or "It took … seconds to fall asleep", then "Dumping input data for V1 LLM engine", "CUDA error: an
    illegal memory access was encountered", and a dead EngineCore. SGLang: "release_memory_occupation should be called
    only when no ongoing request".
    ## Why
    vLLM's sleep unmaps weights and KV cache at once; the scheduler does not know, and goes on with the requests that it
    has. In asynchronous rollouts (agent loops, multi-turn, aborted stragglers) some request is always under way.
    ## Example
    ```python
    await engine.sleep()                          # wrong while agent loops still await a completion
    await asyncio.gather(*running); await engine.sleep()   # right
    ```
    ## Cure
    Wait for all requests, or abort them, before sleeping: `await engine.abort(...)`, `/pause` of newer vLLM,
    `wait_for_requests_to_drain`; then `sleep`.
    ## When it is safe
    With synchronous `LLM.generate`, which returns when all is done.
    ## Sources
    - https://github.com/vllm-project/vllm/issues/28714: illegal memory access after POST /sleep under load
    - https://github.com/vllm-project/vllm/issues/36651: what touches freed memory during sleep
    - https://docs.vllm.ai/en/latest/features/sleep_mode.html: what sleep frees
    """

    name = "rollout-engine-slept-while-requests-run"
    title = Text("The engine is put to sleep while it still processes requests", "引擎仍在处理请求时被置为休眠")

    log_words = ("fall asleep", "POST /sleep", "Sleep mode freed", "release_memory_occupation", "Dumping input data")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"release_memory_occupation should be called only when|[Cc]annot (?:sleep|release memory).* (?:running"
                r"|ongoing|unfinished|pending) requests?"
            ),
            certainty=Certainty.CERTAIN,
        ),
        Sign(_ILLEGAL, beside=_ASLEEP),
        Sign(
            Pattern(
                r"Dumping input data for V1 LLM engine|EngineDeadError|EngineCore encountered (?:a fatal error"
                r"|an issue)"
            ),
            beside=_ASLEEP,
        ),
    )
    cause = Text(
        "The engine was told to sleep, which unmaps its weights and KV cache, while requests were still "
        "running on them.",
        "引擎在请求仍在运行时被要求休眠，权重与 KV cache 的映射随即被解除。",
    )
    cures = (
        Text(
            "Let all requests end, or abort them, before sleep: engine.abort(...), /pause, an await for "
            "every generate task",
            "休眠前让所有请求结束或中止它们：engine.abort(...)、/pause、等待每个 generate 任务",
        ),
    )
    confirm = (
        Text(
            "The line about sleep stands before the error, with requests running in between",
            "关于休眠的行在报错之前，且其间有请求在运行",
        ),
    )

    def sureness(self, log: FailureLog, sign: Sign, evidence: Found | LoggedError) -> Certainty | None:
        """Only where the engine slept before the failure, and was not woken in between."""
        if sign.beside is None:
            return sign.certainty
        asleep, awake = log.find(_ASLEEP), log.find(_AWAKE)
        line = evidence.line if isinstance(evidence, Found) else evidence.raised.at
        if asleep is None or asleep.line.number > line.number:
            return None
        woken = awake is not None and asleep.line.number < awake.line.number < line.number
        return Certainty.POSSIBLE if woken else sign.certainty
