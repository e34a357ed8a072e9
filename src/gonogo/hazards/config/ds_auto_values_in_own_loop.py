from collections.abc import Iterator

from gonogo.hazards.facts.training_framework import fix_with_edits, mentions, uses_deepspeed_directly
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Severity, Text, translated

_FATAL_KEYS = (("train_batch_size",), ("train_micro_batch_size_per_gpu",), ("gradient_accumulation_steps",))


class DsAutoValuesInOwnLoop(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Every "auto" in a config used without transformers or accelerate."""
        if not uses_deepspeed_directly(run):
            return
        autos = [(keys, field) for keys, field in config.entries() if field.known and field.value == "auto"]
        # Below zero_optimization, "auto" gives DeepSpeed's own default, as a reader would expect.
        wrong = [(keys, field) for keys, field in autos if keys[0] != "zero_optimization"]
        if not wrong:
            return
        filled = mentions(run, *(f'"{keys[-1]}"' for keys, _ in wrong), *(f"'{keys[-1]}'" for keys, _ in wrong))
        fatal = [(keys, field) for keys, field in wrong if keys in _FATAL_KEYS]
        names = ", ".join(".".join(keys) for keys, _ in wrong)
        total = [keys for keys, _ in wrong if keys == ("train_batch_size",)]
        call = next(call for script in run.scripts for call in script.calls("deepspeed.initialize"))
        yield self.finding(
            self.texts["cause"].format(names=names),
            severity=Severity.ERROR if fatal else Severity.WARNING,
            certainty=Certainty.POSSIBLE if filled else Certainty.CERTAIN if fatal else Certainty.LIKELY,
            cure=tuple(_choose_cures([keys for keys, _ in wrong], config)),
            spans=(
                *(field.span() for _, field in (fatal or wrong)),
                call.place.span(translated("given to DeepSpeed here")),
            ),
            fixes=fix_with_edits(
                translated("Remove train_batch_size: DeepSpeed computes it"),
                lambda: config.removing("train_batch_size"),
            )
            if total and len(wrong) == 1 and config.raw("train_micro_batch_size_per_gpu").number
            else (),
            confirm=(translated("The program does not replace the values before deepspeed.initialize"),)
            if filled
            else (),
        )


def _choose_cures(invalid_keys: list[tuple[str, ...]], config: DeepSpeedConfig) -> Iterator[Text]:
    computed = ("train_batch_size",) if config.raw("train_micro_batch_size_per_gpu").known else None
    if computed in invalid_keys:
        yield translated("Leave train_batch_size out: DeepSpeed computes it")
    switches = [".".join(keys) for keys in invalid_keys if keys[-1] == "enabled"]
    if switches:
        yield translated("Set {names} to true or false").format(names=", ".join(switches))
    others = [".".join(keys) for keys in invalid_keys if keys != computed and keys[-1] != "enabled"]
    if others:
        yield translated("Give {names} explicit values").format(names=", ".join(others))
