from gonogo.evidence.log.match import first_match, matched_text
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, Pattern, Text, translated

_MIXED_DTYPE_MESSAGES = (
    "Must flatten tensors with uniform dtype",
    "Must flatten tensors with the same dtype",
    "`FlatParameter` requires uniform dtype",
    "FlatParameter requires uniform dtype",
    "FSDP expects uniform original parameter dtype",
)
_REQUIRES_GRAD = (
    "Must flatten tensors with uniform `requires_grad`",
    "Must flatten tensors with uniform requires_grad",
    "`FlatParameter` requires uniform `requires_grad`",
    "FlatParameter requires uniform requires_grad",
)
_INTEGER = "Cannot flatten integer dtype tensors"
_MIXED_DTYPES_PATTERN = Pattern(r"but got (?:both )?(\{[^}]{1,120}\}|torch\.\w{1,20}) ?(?:and (torch\.\w{1,20}))?")


class FsdpMixedDtypeFlatten(Hazard):
    log_words = ("Must flatten tensors", "requires uniform", "FSDP expects uniform", _INTEGER)

    def in_log(self, log: FailureLog) -> Findings:
        """FSDP's check of the parameters to flatten, in the wording of its versions."""
        cut = (
            None
            if log.errors
            else find_truncated_error(log, ("flat_param.py", "_validate_tensors_to_flatten"), max_frames=1)
        )
        if evidence := first_match(log, *_MIXED_DTYPE_MESSAGES) or cut:
            two = _MIXED_DTYPES_PATTERN.search(matched_text(log, evidence))
            dtypes = " / ".join(part for part in two.groups() if part) if two else ""
            yield self.log_finding(
                evidence,
                translated("One module that FSDP wraps holds parameters of different dtypes{dtypes}.").format(
                    dtypes=Text(f" ({dtypes})", f"（{dtypes}）") if dtypes else ""
                ),
                cure=_UNIFORM_DTYPE_CURES,
                certainty=Certainty.LIKELY if evidence is cut else Certainty.CERTAIN,
            )
        elif evidence := first_match(log, *_REQUIRES_GRAD):
            yield self.log_finding(evidence)
        elif evidence := first_match(log, _INTEGER):
            yield self.log_finding(
                evidence,
                translated("The quantized weights are stored as integers, which FSDP cannot flatten with the others."),
                cure=_UNIFORM_DTYPE_CURES[1:],
                certainty=Certainty.POSSIBLE,
            )


_UNIFORM_DTYPE_CURES = (
    translated(
        "Cast everything to one dtype before FSDP wraps the model: model.to(torch.bfloat16), LoRA adapters too "
        "(autocast_adapter_dtype=False)"
    ),
    translated("With 4-bit weights: set bnb_4bit_quant_storage to the same dtype as torch_dtype"),
)
