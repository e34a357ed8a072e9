"""What PyTorch says where an operator meets plain tensors and FSDP2's DTensors: several causes share it."""

from gonogo.hazards.rule import Pattern

MIXED = Pattern(r"mixed torch\.Tensor and DTensor")
MIXED_WORDS = ("mixed torch.Tensor and DTensor",)
GENERATES = ("generate", "_generate_and_scor", "sample_completions")
"""Functions on the way to a method of the model other than forward."""
RECOMPUTES = ("unpack_hook", "recompute_fn", "ctx.run_function(*detached")
"""Functions of torch.utils.checkpoint that run a part of the forward again."""
