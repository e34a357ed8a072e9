from gonogo.hazards.version_rule import BelowMinimum
from gonogo.hazards.rule import Text


class TransformersTorchBelowMinimum(BelowMinimum):
    """transformers goes without a PyTorch that is older than it takes.
    ## What happens
    "Disabling PyTorch because PyTorch >= 2.4 is required but found 2.3.0", and then an ImportError: the class
    "requires the PyTorch library but it was not found in your environment". Some releases fail in the import instead:
    "module 'torch' has no attribute 'compiler'".
    ## Why
    torch is no hard dependency of transformers, so that `pip install -U transformers`, or a requirement without an
    upper limit, brings a transformers that the installed torch is too old for: 4.48 asks for 2.0, 4.52 for 2.1, 4.56
    for 2.2, 5.1 for 2.4.
    ## Example
    ```text
    torch==2.3.0
    transformers==5.1.0    # wrong: it asks for torch 2.4
    transformers==4.57.3    # right
    ```
    ## Cure
    Raise torch, or pin the transformers that goes with it.
    ## When it is safe
    Where torch is at least what transformers requires.
    ## Sources
    - https://github.com/alibaba-damo-academy/Lumos/issues/8: torch 2.3.0 beside transformers 5
    - https://github.com/jingyaogong/minimind/issues/588: torch 2.0.1; an older transformers settles it
    - https://github.com/huggingface/transformers/issues/37238: transformers 4.50 with torch 2.0: no attribute
      'compiler'
    """

    name = "transformers-torch-below-minimum"
    title = Text("PyTorch is older than this transformers takes", "PyTorch 比该版本 transformers 的要求旧")
    package = "torch"
    sure_from = ">=4.50"
    effect = Text(
        "transformers goes without it, and its models and Trainer raise an ImportError",
        "transformers 会弃用它，模型与 Trainer 抛出 ImportError",
    )
