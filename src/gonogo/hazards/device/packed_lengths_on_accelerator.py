from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class PackedLengthsOnAccelerator(LoggedHazard):
    """The lengths for pack_padded_sequence lie on the accelerator.
    ## What happens
    "RuntimeError: 'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor", at the
    first forward of a recurrent network.
    ## Why
    The lengths decide in Python and C++ how the sequences are packed, so they have to be on the CPU (since
    PyTorch 1.7). A loop that moves the whole batch to the accelerator moves them too. So does
    `torch.set_default_device`.
    ## Example
    ```python
    pack_padded_sequence(x, lengths, batch_first=True)          # wrong: lengths are on cuda
    pack_padded_sequence(x, lengths.cpu(), batch_first=True)    # right
    ```
    ## Cure
    `lengths.cpu()`, or a list, or leave the lengths out of what is moved.
    ## When it is safe
    Where the lengths stay on the CPU.
    ## Sources
    - https://github.com/pytorch/pytorch/issues/43227: why it is so since 1.7
    - https://github.com/pytorch/pytorch/pull/33032: a default tensor type of CUDA
    - https://github.com/bentrevett/pytorch-seq2seq/issues/156: a tutorial that broke with it
    """

    name = "packed-lengths-on-accelerator"
    title = Text("Lengths of packed sequences lie on the accelerator", "打包序列的长度位于加速器上")
    log_words = ("1D CPU int64",)
    signs = (
        Sign(
            Pattern(r"'lengths' argument should be a 1D CPU int64 tensor, but got (?P<got>.+?) tensor"),
            Certainty.CERTAIN,
        ),
    )
    cause = Text(
        "pack_padded_sequence takes its lengths from the CPU; it got a {got} tensor.",
        "pack_padded_sequence 的长度必须在 CPU 上；得到的是 {got} 张量。",
    )
    cures = (
        Text(
            "pack_padded_sequence(x, lengths.cpu(), …), or don't move the lengths with the batch",
            "pack_padded_sequence(x, lengths.cpu(), …)，或不要把长度随批次一起移动",
        ),
    )
