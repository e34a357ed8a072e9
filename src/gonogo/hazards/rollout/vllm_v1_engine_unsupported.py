from gonogo.hazards.rule import Certainty, Environment, Findings, LoggedHazard, Run, translated


class VllmV1EngineUnsupported(LoggedHazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A TRL older than vLLM's V1 engine with a vLLM that uses it, in a run that generates with vLLM."""
        if not environment.within("trl", ">=0.14,<0.16") or not environment.within("vllm", ">=0.8"):
            return
        if run.arguments.get("use_vllm").truth is not True or run.launch is None:
            return
        engine = run.launch.variable("VLLM_USE_V1")
        if (engine.known and engine.number == 0) or engine.unknown:
            return
        trl, vllm = environment.field("trl"), environment.field("vllm")
        yield self.finding(
            translated("TRL {trl} moves weights into vLLM's V0 engine, but vLLM {vllm} runs V1.").format(
                trl=trl.get("< 0.16"), vllm=vllm.get(">= 0.8")
            ),
            certainty=Certainty.LIKELY,
            spans=(vllm.span(), trl.span(), run.arguments.get("use_vllm").span(), run.launch.place.span()),
            confirm=translated("VLLM_USE_V1 is not set to 0 in the environment of the processes"),
        )
