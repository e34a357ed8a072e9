from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class TensorNotForNumpy(LoggedHazard):
    """A tensor is given to NumPy that NumPy can't take: of an accelerator, of bfloat16, or with a gradient.
    ## What happens
    "TypeError: can't convert cuda:0 device type tensor to numpy", "TypeError: Got unsupported ScalarType
    BFloat16", "RuntimeError: Can't call numpy() on Tensor that requires grad", in metrics, in logging, in a
    plot, often not before the first evaluation.
    ## Why
    NumPy reads the tensor's own memory: it has to be host memory, of a dtype that NumPy knows (bfloat16 and
    float8 it does not), and outside autograd. A program that ran in float32 or float16 fails where the model's
    outputs are bfloat16.
    ## Example
    ```python
    scores = logits.numpy()                                # wrong on a GPU, in bfloat16, before detach
    scores = logits.detach().float().cpu().numpy()         # right in any case
    ```
    ## Cure
    `.detach().float().cpu().numpy()`, or `.tolist()` and `.item()`, which take any dtype and device. In
    transformers' `compute_metrics` the arrays are NumPy's already.
    ## When it is safe
    On the CPU in float32 without a gradient.
    ## Sources
    - https://github.com/pytorch/pytorch/issues/110285: NumPy has no bfloat16
    - https://github.com/locuslab/open-unlearning/pull/156: losses of a bfloat16 model in an evaluation
    - https://github.com/embeddings-benchmark/mteb/issues/1297: embeddings in bfloat16
    """

    name = "tensor-not-for-numpy"
    title = Text("NumPy can't take this tensor", "NumPy 无法接收该张量")
    log_words = ("unsupported ScalarType", "to numpy", "call numpy")
    signs = (
        Sign(Pattern(r"(?P<said>Got unsupported ScalarType (?:BFloat16|Float8\w*))"), Certainty.CERTAIN),
        Sign(Pattern(r"(?P<said>[Cc]an't convert [\w:]+ device type tensor to numpy)"), Certainty.CERTAIN),
        Sign(Pattern(r"(?P<said>Can't call numpy\(\) on Tensor that requires grad)"), Certainty.CERTAIN),
    )
    cause = Text(
        "{said}: NumPy takes tensors in host memory, of a dtype that it knows, outside autograd.",
        "{said}：NumPy 只接收位于主机内存、dtype 为其所知、不在 autograd 中的张量。",
    )
    cures = (
        Text(
            "At that line: .detach().float().cpu().numpy(); or .tolist(), .item()",
            "在该行使用 .detach().float().cpu().numpy()；或 .tolist()、.item()",
        ),
    )
