from gonogo.hazards.config_rule import ConfigHazard
from gonogo.hazards.rule import Field


def _is_invalid_stage(field: Field) -> bool:
    """Whether a stage is none of the four, quoted (which has its own hazard) or not."""
    stage = field.value in (0, 1, 2, 3) or str(field.value).strip() in ("0", "1", "2", "3", "auto")
    return field.known and not stage


class DsZeroStageInvalid(ConfigHazard):
    wrong = staticmethod(_is_invalid_stage)
