from gonogo.evidence.log.cut import cut_in
from gonogo.evidence.rehearsal.failures import failed_ranks, failure_places
from gonogo.hazards.config._against_arguments import mismatches_in_config
from gonogo.hazards.config._mismatch_lines import Mismatch, mismatches, mismatches_in_log
from gonogo.hazards.rule import (
    Certainty,
    DeepSpeedConfig,
    FailureLog,
    Findings,
    Hazard,
    Pattern,
    RehearsalRecord,
    Run,
    Text,
)

_PROSE = Pattern(
    r"(?i)deepspeed[' ]?s? config\w*.{0,40}TrainingArguments.{0,40}"
    r"(?:mismatch|disagree|conflict|differ|inconsisten|不一致|不匹配|冲突)"
    r"|(?:mismatch|conflict|inconsisten\w+).{0,40}deepspeed config\w*.{0,30}TrainingArguments"
    r"|\b(?:ds|deepspeed)\b.{0,40}\b(?:batch_?size|accumulation_steps|learning_rate|lr|max_grad_norm|num_steps|warmup\w*)"
    r"\b.{0,20} vs\.? hf\b"
)


class DsConfigHfArgsMismatch(Hazard):
    """The DeepSpeed JSON and TrainingArguments give different values for the same setting.

    ## What happens
    The Trainer stops before training: "ValueError: Please correct the following DeepSpeed config values that mismatch
    TrainingArguments values: - ds train_batch_size=32 vs hf train_batch_size (calculated)=4 …".

    ## Why
    Batch sizes, accumulation, precision, clipping, optimizer and scheduler can be set in both places. transformers
    fills in what the JSON gives as "auto", and refuses a number that differs from its own arguments.
    `train_batch_size (calculated)` is per_device_train_batch_size x gradient_accumulation_steps x world size: with
    fewer processes than meant, as without a launcher, it comes out smaller.

    ## Cure
    Set the listed keys to "auto" in the DeepSpeed JSON and keep the values in TrainingArguments.

    ## When it is safe
    Where both places give the same value.

    ## Sources
    - https://github.com/huggingface/transformers/pull/12021: the check, and why it refuses
    - https://github.com/hendrycks/apps/issues/9: batch size, learning rate and warm-up differ
    - https://github.com/CarperAI/trlx/issues/376: the batch size differs because fewer GPUs were used
    """

    name = "ds-config-hf-args-mismatch"
    title = Text(
        en="The DeepSpeed JSON and TrainingArguments disagree", zh="DeepSpeed JSON 与 TrainingArguments 不一致"
    )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """transformers' list; lines whose two values read the same are another hazard."""
        for failed in failed_ranks(record):
            lines = mismatches(failed.failure.message)
            differing = [line for line in lines if not line.alike]
            if not differing:
                continue
            yield self.finding(
                _cause(differing), cure=_cure(differing), spans=failure_places(failed.failure), ranks=failed.ranks
            )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """All that transformers would list, by its own comparison."""
        yield from mismatches_in_config(self, config, run)

    log_words = (
        " vs hf ",
        " vs arg ",
        "DeepSpeed config values that mismatch",
        "trainer_config_finalize",
        "ismatch",
        "TrainingArguments",
    )

    def in_log(self, log: FailureLog) -> Findings:
        """The list, with a line whose values really differ, or the refusal where the list is cut off."""
        found = mismatches_in_log(log)
        if found is None:
            cut = cut_in(log, ("transformers/", "trainer_config_finalize"), within=1)
            prose = None if log.errors else log.find(_PROSE)
            if told := cut or prose:
                yield self.log_finding(told, _cause([]), cure=_cure([]), certainty=Certainty.LIKELY)
            return
        evidence, lines = found
        differing = [line for line in lines if not line.alike]
        if differing or not lines:
            yield self.log_finding(evidence, _cause(differing), cure=_cure(differing))


def _cause(differing: list[Mismatch]) -> Text:
    if not differing:
        return Text(
            en="transformers found settings that differ between the DeepSpeed JSON and TrainingArguments; the log does "
            "not show which.",
            zh="transformers 发现 DeepSpeed JSON 与 TrainingArguments 中有设置不一致；日志没有显示是哪些。",
        )
    said = "; ".join(f"{m.ds_key}={m.ds_value} / {m.hf_key}={m.hf_value}" for m in differing)
    return Text(
        en="{count} setting(s) differ (DeepSpeed JSON / TrainingArguments): {said}.",
        zh="有 {count} 项设置不同（DeepSpeed JSON / TrainingArguments）：{said}。",
    ).format(count=len(differing), said=said)


def _cure(differing: list[Mismatch]) -> tuple[Text, ...]:
    keys: object = ", ".join(m.ds_key for m in differing) or Text("the differing keys", "不一致的键")
    steps = [
        Text(
            en='Set {keys} to "auto" in the DeepSpeed JSON: TrainingArguments then decides',
            zh='在 DeepSpeed JSON 中把 {keys} 设为 "auto"，由 TrainingArguments 决定',
        ).format(keys=keys)
    ]
    if any(m.ds_key == "train_batch_size" for m in differing):
        steps.append(
            Text(
                en="If the calculated train_batch_size is too small, fewer processes run than meant: start with "
                "deepspeed, torchrun or accelerate launch",
                zh="若计算出的 train_batch_size 偏小，说明进程数少于预期：请用 deepspeed、torchrun 或 accelerate "
                "launch 启动",
            )
        )
    return tuple(steps)
