from gonogo.hazards.version_rule import BelowMinimum
from gonogo.hazards.rule import Environment, Findings, Run, Text


class TransformersDeepspeedBelowMinimum(BelowMinimum):
    """transformers refuses a DeepSpeed that is older than its integration needs.
    ## What happens
    TrainingArguments with `deepspeed` end with "ImportError: deepspeed>=0.9.3 is required for a normal functioning of
    this module, but found deepspeed==0.8.3".
    ## Why
    transformers looks at DeepSpeed's version when it first reads a DeepSpeed config. Since 4.31 it asks for 0.9.3. An
    upgrade of transformers alone parts the pair.
    ## Example
    ```text
    transformers==4.31.0
    deepspeed==0.8.3    # wrong
    deepspeed==0.9.5    # right
    ```
    ## Cure
    Raise DeepSpeed, with a PyTorch of its time, or pin the older transformers.
    ## When it is safe
    Where DeepSpeed is not used through transformers.
    ## Sources
    - https://github.com/databrickslabs/dolly/issues/209: deepspeed 0.8.3 refused, with the traceback
    - https://github.com/huggingface/transformers/blob/main/src/transformers/dependency_versions_table.py: the
      versions that transformers requires
    """

    name = "transformers-deepspeed-below-minimum"
    title = Text("DeepSpeed is older than this transformers takes", "DeepSpeed 比该版本 transformers 的要求旧")
    package = "deepspeed"
    effect = Text(
        "TrainingArguments that name a DeepSpeed config end with an ImportError",
        "指定了 DeepSpeed 配置的 TrainingArguments 以 ImportError 结束",
    )

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """DeepSpeed below the lowest version that this transformers takes, unless the run does without it."""
        if run.deepspeed_on is not False:
            yield from super().in_environment(environment, run)
