from gonogo.hazards.version_rule import BelowMinimum
from gonogo.hazards.rule import Pattern, Refusal, Text


class TrainerAccelerateBelowMinimum(BelowMinimum):
    """transformers refuses to train without accelerate, or with one that is older than its Trainer needs.
    ## What happens
    "ImportError: Using the `Trainer` with `PyTorch` requires `accelerate>=0.26.0`" where TrainingArguments are made,
    or, at the import of transformers, "accelerate>=0.26.0 is required for a normal functioning of this module, but
    found accelerate==0.21.0".
    ## Why
    accelerate is no hard dependency of transformers: pip installs the pair without a word. transformers holds a
    lowest version of its own, 0.20.3 in 4.31, 0.21.0 in 4.36, 0.26.0 in 4.45, 1.1.0 in 5.0. The same is said where
    accelerate is not installed, and in a notebook that had imported transformers before it was.
    ## Example
    ```text
    transformers==4.46.3
    accelerate==0.21.0    # wrong
    accelerate==0.26.0    # right
    ```
    ## Cure
    Install accelerate of that version or newer (transformers[torch] does), with the pip of this Python; then restart
    the notebook's kernel.
    ## When it is safe
    Where accelerate is at least what `ACCELERATE_MIN_VERSION` in transformers/utils/import_utils.py says.
    ## Sources
    - https://github.com/huggingface/course/issues/644: the ImportError in a fine-tuning chapter
    - https://github.com/huggingface/audio-transformers-course/issues/158: the same with 0.21.0 as the lowest version
    - https://github.com/huggingface/blog/issues/1445: installed, and refused all the same, in a notebook
    - https://github.com/huggingface/transformers/blob/main/src/transformers/dependency_versions_table.py: the
      versions that transformers requires
    """

    name = "trainer-accelerate-below-minimum"
    title = Text("transformers finds no accelerate that is new enough", "transformers 找不到足够新的 accelerate")
    refusal = Refusal(
        Pattern(
            r"Using the `Trainer` with `PyTorch` requires `accelerate|accelerate\S+ is required for a normal function"
        )
    )
    traces = ("if not is_accelerate_available(",)
    package = "accelerate"
    effect = Text(
        "the import of transformers, or TrainingArguments, ends with an ImportError",
        "import transformers 或建立 TrainingArguments 时以 ImportError 结束",
    )
