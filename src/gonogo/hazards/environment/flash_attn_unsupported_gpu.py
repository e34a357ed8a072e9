from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.environment._machine import flash_attention_request, weakest_gpu
from gonogo.hazards.environment._surroundings import first, old_gpu, outside_training
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Pattern, Run, translated

_UNSUPPORTED_GPU_PATTERN = Pattern(
    r"(?i)flash[ _-]?att(?:ention|n)(?:[ _-]?[23v]*)? only supports? (?:ampere|turing|hopper|gpu architectures|sm)"
    r"|flash[ _-]?attention(?:[ _-]?2)? (?:is )?(?:not supported|unsupported) (?:on|by) (?:this|your|volta"
    r"|turing|v100|t4)"
    r"|FlashAttention backward for head dim > \d+ requires A100 or H100"
)
_SGLANG_REFUSAL_PATTERN = Pattern(r"flash_attn at sgl-kernel is only supported on sm\d+")
_CURE = (
    translated(
        'Turn it off: attn_implementation="sdpa" (or "eager"); flash_attn: disabled / sdpa (LLaMA-Factory), '
        "--attn_impl "
        "sdpa (ms-swift), flash_attention: false (axolotl), use_flash_attn: false in a remote-code config"
    ),
    translated("If the model's own code uses it whenever it is installed: pip uninstall flash-attn"),
)


_SGLANG_CURE = translated(
    "Use another backend: --attention-backend triton or flashinfer (torch_sdpa for SGLang's diffusion models)"
)


class FlashAttnUnsupportedGpu(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """flash-attn requested on GPUs older than Ampere."""
        found = weakest_gpu(environment)
        if found is None or found[1] >= (8, 0):
            return
        asked = flash_attention_request(run)
        if asked is None:
            return
        gpu, (major, minor) = found
        yield self.finding(
            translated(
                "flash-attn is requested, but {gpu} has compute capability {capability}: its kernels need 8.0 or "
                "higher."
            ).format(gpu=gpu.name, capability=f"{major}.{minor}"),
            cure=_CURE[:1],
            spans=asked.span(),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """flash-attn's own error, which has a single cause."""
        evidence = first(log, _UNSUPPORTED_GPU_PATTERN)
        if evidence is None:
            if sglang := first(log, _SGLANG_REFUSAL_PATTERN):
                yield self.log_finding(
                    sglang,
                    translated(
                        "SGLang uses FlashAttention 3, but sgl-kernel has no FlashAttention 3 kernels for this GPU."
                    ),
                    cure=_SGLANG_CURE,
                    certainty=Certainty.LIKELY,
                    confirm=translated("torch.cuda.get_device_capability() is neither (9, 0) nor (8, …)"),
                )
            return
        old = old_gpu(log)
        yield self.log_finding(
            evidence,
            translated("flash-attn is used on a GPU older than Ampere, for which it has no kernels."),
            cure=_CURE,
            certainty=Certainty.POSSIBLE if outside_training(log) else Certainty.CERTAIN,
            extra_evidence=(old,) if old else (),
            confirm=translated('The run ends with "FlashAttention only supports Ampere GPUs or newer"'),
        )
