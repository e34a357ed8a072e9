from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.version_rule import Around, UnfitVersions
from gonogo.hazards.facts.how_it_trains import with_trainer
from gonogo.hazards.rule import Certainty, Findings, Pattern, Run, Text


class TrainerStateHoldsTensor(UnfitVersions):
    """transformers 4.38 logs DeepSpeed's gradient norm as a tensor, and can't write the Trainer's state.
    ## What happens
    "TypeError: Object of type Tensor is not JSON serializable", in `TrainerState.save_to_json`: at the first
    checkpoint, or in `trainer.save_state()` when training is over.
    ## Why
    4.38 began to log grad_norm. Under DeepSpeed it is what the engine returns, a tensor with ZeRO-1 and ZeRO-2; the
    state, which keeps all that was logged, is written as JSON. A metric or a callback of one's own that logs a tensor
    does the same in any release.
    ## Example
    ```text
    transformers==4.38.2    # wrong, with DeepSpeed
    transformers==4.39.3    # right
    ```
    ## Cure
    Install transformers 4.39 or newer (or 4.37.2). Where a metric of your own is the tensor: log value.item().
    ## When it is safe
    Without DeepSpeed, or with another transformers, as long as only numbers are logged.
    ## Sources
    - https://github.com/huggingface/transformers/issues/29207: DeepSpeed ZeRO-2 with 4.38.1
    - https://github.com/hiyouga/LlamaFactory/issues/2563: in save_state, after the training
    - https://github.com/huggingface/transformers/pull/29568: the change that 4.39 brought
    """

    name = "trainer-state-holds-tensor"
    title = Text("The Trainer's state holds a tensor and can't be saved", "Trainer 的状态中有张量，无法保存")
    log_words = ("is not JSON serializable",)
    ends_at = (("transformers/trainer_callback.py", "save_to_json"), ("json/encoder.py", "_iterencode"))
    traces = ("json_string = json.dumps(dataclasses.asdict(self)", ".save_to_json(")
    versions = (("transformers", ">=4.38,<4.39"),)
    install = ("transformers", ">=4.39.3,<5")
    certainty = Certainty.LIKELY
    cause = Text(
        "{transformers} logs DeepSpeed's gradient norm as a tensor: writing the first checkpoint, or the final state, "
        "fails.",
        "{transformers} 把 DeepSpeed 的梯度范数以张量形式记入日志：写第一个检查点或最终状态时会失败。",
    )
    confirm = (Text("grad_norm in the log is tensor(...)", "日志中的 grad_norm 为 tensor(...)"),)

    def around(self, run: Run) -> Around | None:
        """The Trainer under ZeRO-1 or ZeRO-2."""
        return Around() if run.zero_stage in (1, 2) and with_trainer(run) else None

    def in_log(self, log: FailureLog) -> Findings:
        """The refusal, in the frames that write the state; json's words alone may be of a program's own file."""
        for error in log.errors_of("TypeError", says=_SAID):
            own = bool(error.frames) and not error.passes("save_to_json", "save_state")
            yield self.log_finding(
                error,
                _LOGGED,
                cure=_CURES,
                certainty=Certainty.POSSIBLE if own or not error.frames else Certainty.LIKELY,
                confirm=self.confirm,
            )
            return


_SAID = Pattern(r"Object of type Tensor is not JSON serializable")
_LOGGED = Text(
    "What the Trainer has logged holds a tensor, and its state is written as JSON: transformers 4.38 logs DeepSpeed's "
    "gradient norm so.",
    "Trainer 记录的内容中有张量，而其状态要写成 JSON：transformers 4.38 就这样记录 DeepSpeed 的梯度范数。",
)
_CURES = (
    Text("pip install 'transformers>=4.39.3,<5', or 4.37.2", "pip install 'transformers>=4.39.3,<5'，或 4.37.2"),
    Text(
        "Where a metric or callback of your own logs the tensor: value.item()",
        "若是自己的指标或回调记录了张量：用 value.item()",
    ),
)
