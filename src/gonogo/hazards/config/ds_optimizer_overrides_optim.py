from gonogo.hazards.facts.training_framework import fix_with_edits, uses_trainer
from gonogo.hazards.rule import DeepSpeedConfig, Field, Finding, Findings, Fix, Hazard, Run, Severity, translated

_DEFAULT_OPTIMIZERS = ("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused", "adamw_torch_npu_fused")


class DsOptimizerOverridesOptim(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """``--optim`` that contradicts the config's optimizer section or its offload."""
        if not uses_trainer(run):
            return
        block, kind = config.key_place("optimizer"), config.raw("optimizer", "type")
        flag, requested = run.arguments.get("adafactor"), run.arguments.get("optim")
        if block and flag.truth is True and run.environment.within("transformers", "<4.57"):
            yield self._adafactor_finding(config, flag, "--adafactor")
            return
        wanted = str(requested.value).rpartition(".")[2].lower() if requested.known else "adamw_torch"
        if wanted in _DEFAULT_OPTIMIZERS:
            return
        if block is not None:
            name = str(kind.get("")).lower()
            if name and wanted.startswith(name):
                return
            if wanted == "adafactor" and run.environment.within("transformers", ">=4.57,<5"):
                yield self._adafactor_finding(config, requested, "--optim")
                return
            yield self.finding(
                self.texts["other_optimizer_cause"].format(wanted=wanted, kind=kind.get("?")),
                severity=Severity.WARNING,
                cure=self.texts["cure"].format(option="--optim"),
                spans=(block.span(), requested.span(_REQUESTED_LABEL)),
                fixes=self._removal_fixes(config),
            )
            return
        offload = config.offload_target("optimizer")
        forced = config.raw("zero_force_ds_cpu_optimizer")
        if offload.get() not in ("cpu", "nvme") or forced.truth is False or "lion" in wanted or wanted == "adagrad":
            return
        yield self.finding(
            self.texts["cpu_adam_cause"].format(wanted=wanted, device=offload.value),
            severity=Severity.WARNING,
            cure=translated("Drop --optim and accept AdamW in host memory, or remove offload_optimizer"),
            spans=(offload.span(), requested.span(_REQUESTED_LABEL)),
        )

    def _adafactor_finding(self, config: DeepSpeedConfig, requested_optimizer: Field, option: str) -> Finding:
        block = config.key_place("optimizer")
        return self.finding(
            self.texts["adafactor_cause"],
            cure=self.texts["cure"].format(option=option),
            spans=(block.span() if block else None, requested_optimizer.span(_REQUESTED_LABEL)),
            fixes=self._removal_fixes(config),
        )

    def _removal_fixes(self, config: DeepSpeedConfig) -> tuple[Fix, ...]:
        title = translated('Remove the "optimizer" block')
        return fix_with_edits(title, lambda: config.removing("optimizer"), safe=False)


_REQUESTED_LABEL = translated("requested here")
