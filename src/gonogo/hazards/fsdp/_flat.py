"""What an operator says that is given the flat shard of FSDP1 instead of a weight, or nothing at all."""

from gonogo.hazards.rule import Pattern

FLAT = Pattern(
    r"'weight' must be 2-D|mat2 must be a matrix|must be a matrix, got 1-D tensor|size mismatch, got (?:input|mat1)"
    r"|non-zero number of elements, but its data is not allocated yet|weight should have at least three dimensions"
    r"|expected weight to be at least|of storage of size 0|got weight of size \[0\]"
)
UNDER_FSDP = Pattern(r"(?i)\bfsdp|fully_?sharded|distributed_type: FSDP|FULL_SHARD")
UNDER_ZERO = Pattern(r"(?i)deepspeed/runtime|zero_?3|distributed_type: DEEPSPEED|--deepspeed|zero_optimization")
