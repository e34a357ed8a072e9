from gonogo.hazards.rule import Certainty, Environment, Findings, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class VllmV1EngineUnsupported(LoggedHazard):
    """Code written for vLLM's V0 engine takes `llm_engine.model_executor…model`, which the V1 engine does not have.
    ## What happens
    "AttributeError: 'LLMEngine' object has no attribute 'model_executor'" (or 'driver_worker') when weights are moved
    to the engine or its process group is made.
    ## Why
    vLLM ≥ 0.8 runs the V1 engine by default: the model lives in another process. TRL before 0.16, online DPO of later
    ones, OpenRLHF before 0.6.3 and scripts of that time take the V0 way.
    ## Example
    ```text
    trl==0.15.2 vllm==0.8.0    # wrong
    trl==0.16.0 vllm==0.8.0    # right
    ```
    ## Cure
    Upgrade the trainer; or `VLLM_USE_V1=0` (vLLM < 0.11, where V0 still exists), or `vllm<0.8`; own code:
    `LLM.collective_rpc` or `apply_model`.
    ## When it is safe
    Below vLLM 0.8.
    ## Sources
    - https://github.com/huggingface/trl/issues/3115: TRL 0.15.2 with vLLM 0.8.0
    - https://github.com/OpenRLHF/OpenRLHF/issues/922: OpenRLHF: collective_rpc of the V0 engine
    - https://github.com/vllm-project/vllm/issues/16607: the model is not accessible in V1
    - https://github.com/huggingface/trl/issues/3859: online DPO of TRL 0.19
    """

    name = "vllm-v1-engine-unsupported"
    title = Text(
        "The framework reaches into vLLM's V0 engine, and vLLM 0.8 runs V1",
        "框架访问 vLLM V0 引擎内部，而 vLLM 0.8 起运行 V1",
    )

    log_words = ("has no attribute 'model_executor'", "has no attribute 'driver_worker'")
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"'(?:\w*LLMEngine|AsyncLLM|SyncMPClient|InprocClient|LLM)' object has no attribute '(?:model_executor"
                r"|driver_worker|engine_core)'"
            )
        ),
        Sign(types=("AttributeError", ""), frames=(("llm_engine.model_executor", "model_executor.driver_worker"),)),
    )
    cause = Text(
        "The code takes the model out of vLLM's V0 engine; the V1 engine, default since vLLM 0.8, has it "
        "in another process.",
        "代码从 vLLM V0 引擎中取出模型；自 vLLM 0.8 起默认的 V1 引擎把模型放在另一进程。",
    )
    cures = (
        Text(
            'Upgrade the trainer (trl>=0.16), or run VLLM_USE_V1=0 with vllm<0.11, or pip install "vllm<0.8"',
            '升级训练框架（trl>=0.16），或在 vllm<0.11 下设 VLLM_USE_V1=0，或 pip install "vllm<0.8"',
        ),
    )
    confirm = (Text("pip show vllm says 0.8 or newer", "pip show vllm 显示 0.8 或更新"),)

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A TRL from before the V1 engine beside a vLLM that runs it, where the run is to generate with vLLM."""
        if not environment.within("trl", ">=0.14,<0.16") or not environment.within("vllm", ">=0.8"):
            return
        if run.arguments.get("use_vllm").truth is not True or run.launch is None:
            return
        engine = run.launch.variable("VLLM_USE_V1")
        if (engine.known and engine.number == 0) or engine.unknown:
            return
        trl, vllm = environment.field("trl"), environment.field("vllm")
        yield self.finding(
            Text(
                "TRL {trl} moves weights into vLLM's V0 engine, and vLLM {vllm} runs V1.",
                "TRL {trl} 把权重移入 vLLM 的 V0 引擎，而 vLLM {vllm} 运行 V1。",
            ).format(trl=trl.get("< 0.16"), vllm=vllm.get(">= 0.8")),
            certainty=Certainty.LIKELY,
            cure=self.cures,
            spans=(vllm.span(), trl.span(), run.arguments.get("use_vllm").span(), run.launch.place.span()),
            confirm=Text(
                "VLLM_USE_V1 is not set to 0 in the environment of the processes", "进程的环境中没有设 VLLM_USE_V1=0"
            ),
        )
