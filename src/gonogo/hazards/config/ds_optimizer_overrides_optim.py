from gonogo.hazards.facts.how_it_trains import fix_of, with_trainer
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Field, Finding, Findings, Fix, Hazard, Run, Severity, Text

_DEFAULTS = ("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused", "adamw_torch_npu_fused")


class DsOptimizerOverridesOptim(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """``--optim`` against the config's optimizer block, or its offload."""
        if not with_trainer(run):
            return
        block, kind = config.key_place("optimizer"), config.raw("optimizer", "type")
        flag, asked = run.arguments.get("adafactor"), run.arguments.get("optim")
        if block and flag.truth is True and run.environment.within("transformers", "<4.57"):
            yield self._refused(config, flag, "--adafactor")
            return
        wanted = str(asked.value).rpartition(".")[2].lower() if asked.known else "adamw_torch"
        if wanted in _DEFAULTS:
            return
        if block is not None:
            name = str(kind.get("")).lower()
            if name and wanted.startswith(name):
                return
            if wanted == "adafactor" and run.environment.within("transformers", ">=4.57,<5"):
                yield self._refused(config, asked, "--optim")
                return
            yield self.finding(
                Text(
                    'optim is "{wanted}", and the DeepSpeed config has an optimizer {kind}: that one is used, and '
                    "{wanted} has no effect.",
                    'optim 为 "{wanted}"，而 DeepSpeed 配置中有 optimizer {kind}：实际使用后者，{wanted} 不起作用。',
                ).format(wanted=wanted, kind=kind.get("?")),
                severity=Severity.WARNING,
                certainty=Certainty.LIKELY,
                cure=_CURE.format(option="--optim"),
                spans=(block.span(), asked.span(_ASKED)),
                fixes=self._removal(config),
            )
            return
        offload = config.offload("optimizer")
        forced = config.raw("zero_force_ds_cpu_optimizer")
        if offload.get() not in ("cpu", "nvme") or forced.truth is False or "lion" in wanted or wanted == "adagrad":
            return
        yield self.finding(
            Text(
                'optim is "{wanted}", and offload_optimizer is {device}: accelerate replaces the Trainer\'s '
                "optimizer by DeepSpeedCPUAdam.",
                'optim 为 "{wanted}"，而 offload_optimizer 为 {device}：accelerate 会把 Trainer 的优化器换成 '
                "DeepSpeedCPUAdam。",
            ).format(wanted=wanted, device=offload.value),
            severity=Severity.WARNING,
            certainty=Certainty.LIKELY,
            cure=Text(
                "Drop --optim and count on AdamW in host memory, or remove offload_optimizer",
                "去掉 --optim 并按内存中的 AdamW 估算，或去掉 offload_optimizer",
            ),
            spans=(offload.span(), asked.span(_ASKED)),
        )

    def _refused(self, config: DeepSpeedConfig, asked: Field, option: str) -> Finding:
        block = config.key_place("optimizer")
        return self.finding(
            Text(
                "Adafactor is requested, and the DeepSpeed config has an optimizer block: transformers refuses both.",
                "要求使用 Adafactor，而 DeepSpeed 配置中有 optimizer 段：transformers 拒绝两者并存。",
            ),
            certainty=Certainty.LIKELY,
            cure=_CURE.format(option=option),
            spans=(block.span() if block else None, asked.span(_ASKED)),
            fixes=self._removal(config),
        )

    def _removal(self, config: DeepSpeedConfig) -> tuple[Fix, ...]:
        title = Text('Remove the "optimizer" block', '删除 "optimizer" 段')
        return fix_of(title, lambda: config.removing("optimizer"), safe=False)


_ASKED = Text("requested here", "此处要求")
_CURE = Text(
    'Remove the "optimizer" block from the DeepSpeed config, or drop {option}',
    '从 DeepSpeed 配置中删除 "optimizer" 段，或去掉 {option}',
)
