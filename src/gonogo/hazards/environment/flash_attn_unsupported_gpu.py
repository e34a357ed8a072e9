from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.environment._machine import asks_for_flash_attention, weakest
from gonogo.hazards.environment._surroundings import first, old_gpu, outside_training
from gonogo.hazards.rule import Certainty, Environment, Findings, Hazard, Pattern, Run, Text

_REFUSED = Pattern(
    r"(?i)flash[ _-]?att(?:ention|n)(?:[ _-]?[23v]*)? only supports? (?:ampere|turing|hopper|gpu architectures|sm)"
    r"|flash[ _-]?attention(?:[ _-]?2)? (?:is )?(?:not supported|unsupported) (?:on|by) (?:this|your|volta"
    r"|turing|v100|t4)"
    r"|FlashAttention backward for head dim > \d+ requires A100 or H100"
)
_OF_SGLANG = Pattern(r"flash_attn at sgl-kernel is only supported on sm\d+")
_CURE = (
    Text(
        'Turn it off: attn_implementation="sdpa" (or "eager"); flash_attn: disabled / sdpa (LLaMA-Factory), '
        "--attn_impl "
        "sdpa (ms-swift), flash_attention: false (axolotl), use_flash_attn: false in a remote-code config",
        '关闭它：attn_implementation="sdpa"（或 "eager"）；LLaMA-Factory 用 flash_attn: disabled / sdpa，ms-swift 用 '
        "--attn_impl sdpa，axolotl 用 flash_attention: false，远程代码的 config 中 use_flash_attn: false",
    ),
    Text(
        "If the model's own code takes it whenever it is installed: pip uninstall flash-attn",
        "若模型自己的代码只要检测到已安装就使用：pip uninstall flash-attn",
    ),
)


_CURE_OF_SGLANG = Text(
    "Use another backend: --attention-backend triton or flashinfer (torch_sdpa for SGLang's diffusion models)",
    "换用其他后端：--attention-backend triton 或 flashinfer（SGLang 的扩散模型用 torch_sdpa）",
)


class FlashAttnUnsupportedGpu(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """flash-attn asked for, on cards older than Ampere."""
        found = weakest(environment)
        if found is None or found[1] >= (8, 0):
            return
        asked = asks_for_flash_attention(run)
        if asked is None:
            return
        gpu, (major, minor) = found
        yield self.finding(
            Text(
                "flash-attn is requested, and {gpu} has compute capability {capability}: its kernels begin with 8.0.",
                "启用了 flash-attn，而 {gpu} 的计算能力为 {capability}：其 kernel 从 8.0 起才支持。",
            ).format(gpu=gpu.name, capability=f"{major}.{minor}"),
            cure=_CURE[:1],
            spans=asked.span(),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """flash-attn's own words, which have one cause."""
        evidence = first(log, _REFUSED)
        if evidence is None:
            if sglang := first(log, _OF_SGLANG):
                yield self.log_finding(
                    sglang,
                    Text(
                        "SGLang takes FlashAttention 3, and sgl-kernel has none for this GPU.",
                        "SGLang 使用 FlashAttention 3，而 sgl-kernel 没有该 GPU 的 kernel。",
                    ),
                    cure=_CURE_OF_SGLANG,
                    certainty=Certainty.LIKELY,
                    confirm=Text(
                        "torch.cuda.get_device_capability() is neither (9, 0) nor (8, …)",
                        "torch.cuda.get_device_capability() 既不是 (9, 0) 也不是 (8, …)",
                    ),
                )
            return
        old = old_gpu(log)
        yield self.log_finding(
            evidence,
            Text(
                "flash-attn is used on a GPU older than Ampere, for which it has no kernels.",
                "在早于 Ampere 的 GPU 上使用了 flash-attn，它没有相应的 kernel。",
            ),
            cure=_CURE,
            certainty=Certainty.POSSIBLE if outside_training(log) else Certainty.CERTAIN,
            also=(old,) if old else (),
            confirm=Text(
                'The run ends with "FlashAttention only supports Ampere GPUs or newer"',
                "运行以 “FlashAttention only supports Ampere GPUs or newer” 结束",
            ),
        )
