import ast
import re

from gonogo.evidence.log.match import first_match
from gonogo.evidence.patterns import lazy_compile
from gonogo.evidence.training_arguments import TRAINER_CLASSES
from gonogo.hazards.facts.training_script import (
    first_argument,
    gradient_checkpointing_setting,
    is_checkpointing_reentrant,
    run_mentions,
)
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, LoggedError, LogLine, Run, Script, translated

_NO_GRAD_MESSAGES = (
    "of tensors does not require grad and does not have a grad_fn",
    "tensors does not require grad and does not have a grad_fn",
    "element 0 of tensors does not require grad",
)
_NO_INPUT_GRAD_WARNING = "None of the inputs have requires_grad=True"
_CHECKPOINTING_PATTERN = lazy_compile(
    r"(?i)gradient[_ ]checkpointing|utils/checkpoint\.py|enable_input_require_grads|梯度检查点"
)
_CHECKPOINTING_OFF_PATTERN = lazy_compile(r"(?i)gradient_checkpointing['\"]?\s*[=: ]\s*false")
_ADAPTER_PATTERN = lazy_compile(r"(?i)\bq?-?lora\b|lora_|_lora|peft|adapter|adalora", re.ASCII)
_LOGGED_LOSS_PATTERN = lazy_compile(r"['\"]loss['\"]: ?[\d.]")
_NO_TRAINABLE_PARAMETERS_PATTERN = lazy_compile(
    r"(?i)trainable params:? 0\b|trainable parameters = 0\b|trainable%: 0(?:\.0+)?\s*$"
)
_TRAINER = (
    "transformers/trainer.py",
    "training_step",
    "trl/trainer",
    "accelerate/accelerator.py",
    "deepspeed/runtime/engine.py",
)

# Code that makes the inputs require gradients, or trains an embedding.
_REMEDY_MARKERS = (
    *(b"enable_input_require_grads", b"prepare_model_for", b"requires_grad_(True)", b"requires_grad = True"),
    *(b"gradient_checkpointing_enable", b"modules_to_save", b"embed_tokens", b"use_reentrant", b"trl import"),
)
_BASE_TRAINERS = ("transformers.Trainer", "transformers.Seq2SeqTrainer")


class NoGradCheckpointingInputs(Hazard):
    log_words = (
        "does not require grad",
        _NO_INPUT_GRAD_WARNING,
        "checkpointing",
        "trainable param",
        "enable_input_require_grads",
        "in backward",
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """LoRA under transformers' Trainer with reentrant checkpointing, without gradients for the inputs."""
        if b"get_peft_model" not in script.source.data or gradient_checkpointing_setting(run).truth is not True:
            return
        # transformers 5 and trl's trainers enable the inputs' gradients themselves; trained embeddings don't need it.
        if is_checkpointing_reentrant(run) is not True or run.environment.within("transformers", "<5") is not True:
            return
        if run_mentions(run, script, *_REMEDY_MARKERS) or not run_mentions(run, script, b"LoraConfig"):
            return
        trainers = [
            call
            for call in script.calls(*TRAINER_CLASSES)
            if call.names[-1] in _BASE_TRAINERS or call.name in _BASE_TRAINERS
        ]
        wraps = list(script.calls("peft.get_peft_model"))
        if not trainers or len(wraps) != 1:
            return
        wrap, given = wraps[0], gradient_checkpointing_setting(run)
        model = first_argument(wrap, "model")
        statement = script.statement(wrap.node)
        edit = (
            script.inserting_before(statement, f"{model.id}.enable_input_require_grads()")
            if isinstance(model, ast.Name) and statement is not None
            else None
        )
        yield self.finding(
            self.texts["cause_in_script"],
            certainty=Certainty.LIKELY if script.guarded_by(wrap.node) else Certainty.CERTAIN,
            spans=(wrap.place.span(), given.span(translated("checkpointing is turned on here"))),
            fixes=self.fix(translated("Make the inputs require gradients"), edit) if edit is not None else None,
        )

    def in_log(self, log: FailureLog) -> Findings:
        """autograd's error: certain with torch's warning, else judged by signs of checkpointing and adapters."""
        evidence = first_match(log, *_NO_GRAD_MESSAGES)
        warned = log.has(_NO_INPUT_GRAD_WARNING)
        without_error = evidence is None and not log.errors
        if without_error:
            evidence = _warning_without_later_step(log)
        if evidence is None or any(_NO_TRAINABLE_PARAMETERS_PATTERN.search(line.text) for line in log.lines):
            return
        setup = log.setup
        checkpointing = warned or _log_or_setup_has(log, _CHECKPOINTING_PATTERN)
        if not warned and any(_CHECKPOINTING_OFF_PATTERN.search(text) for text in (setup.launch, setup.script)):
            checkpointing = False
        adapter = _log_or_setup_has(log, _ADAPTER_PATTERN)
        error = evidence if isinstance(evidence, LoggedError) else None
        trained = error is not None and error.passes(*_TRAINER)
        # Without frames, a custom training loop can't be told from a Trainer.
        likely = (checkpointing and (adapter or trained)) or (adapter and trained)
        certainty = Certainty.CERTAIN if warned else Certainty.LIKELY if likely else Certainty.POSSIBLE
        if without_error:
            certainty = Certainty.POSSIBLE  # a frozen tower or reference model gives it too, and still trains
        yield self.log_finding(evidence, certainty=certainty, confirm=self.texts["confirm"])


def _warning_without_later_step(log: FailureLog) -> LogLine | None:
    """torch's warning about inputs without gradients, if the log shows no error and no training step after it."""
    warning = next((line for line in log.lines if _NO_INPUT_GRAD_WARNING in line.text), None)
    stepped = warning is not None and any(
        _LOGGED_LOSS_PATTERN.search(line.text) for line in log.lines_after(warning, 200)
    )
    return None if stepped else warning


def _log_or_setup_has(log: FailureLog, pattern: re.Pattern[str]) -> bool:
    """Whether a line of the log, the launch command or the script matches the pattern."""
    texts = (log.setup.launch, log.setup.script)
    return any(pattern.search(text) for text in texts if text) or any(pattern.search(line.text) for line in log.lines)
