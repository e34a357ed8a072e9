from gonogo.hazards.environment._declared import BelowMinimum
from gonogo.hazards.rule import Text


class TrainerAccelerateBelowMinimum(BelowMinimum):
    """transformers refuses an accelerate that is older than its Trainer needs.
    ## What happens
    "ImportError: Using the `Trainer` with `PyTorch` requires `accelerate>=0.26.0`" where TrainingArguments are made,
    or, at the import of transformers, "accelerate>=0.26.0 is required for a normal functioning of this module, but
    found accelerate==0.21.0".
    ## Why
    accelerate is no hard dependency of transformers: pip installs the pair without a word. transformers holds a
    lowest version of its own, 0.20.3 in 4.31, 0.21.0 in 4.36, 0.26.0 in 4.45, 1.1.0 in 5.0.
    ## Example
    ```text
    transformers==4.46.3
    accelerate==0.21.0    # wrong
    accelerate==0.26.0    # right
    ```
    ## Cure
    Raise accelerate to that version, or install transformers[torch], which does.
    ## When it is safe
    Where accelerate is at least what `ACCELERATE_MIN_VERSION` in transformers/utils/import_utils.py says.
    ## Sources
    - https://github.com/huggingface/course/issues/644: the ImportError in a fine-tuning chapter
    - https://github.com/huggingface/audio-transformers-course/issues/158: the same with 0.21.0 as the lowest version
    - https://github.com/huggingface/transformers/blob/main/src/transformers/dependency_versions_table.py: the
      versions that transformers requires
    """

    name = "trainer-accelerate-below-minimum"
    title = Text("accelerate is older than this transformers takes", "accelerate 比该版本 transformers 的要求旧")
    package = "accelerate"
    effect = Text(
        "the import of transformers, or TrainingArguments, ends with an ImportError",
        "import transformers 或建立 TrainingArguments 时以 ImportError 结束",
    )
