"""Finds whether a run asks for FSDP, or got it from a config file that it doesn't name."""

import re

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.patterns import Pattern

_FSDP_PATTERN = Pattern(r"(?i)fsdp|fully_shard|FullyShardedDataParallel")
_FSDP_DISABLED_PATTERN = Pattern(
    r"(?i)\bfsdp['\"]?(?:\s*[:=]|\s(?:to|is|was)\b)\s*['\"]?(?:false|null|none|no\b|off\b)"
)
_FSDP_LOG_WORDS = ("fsdp_config", "--fsdp", "fsdp_auto_wrap_policy", "distributed_type: FSDP", "DistributedType.FSDP")


def is_fsdp_requested(log: FailureLog) -> bool | None:
    """True if the launch, the script, the config or a line of the log asks for FSDP; None if nothing shows it.

    False if a configuration in the log denies it, or if ``accelerate launch`` gets neither FSDP nor a file that could
    ask for it: it then uses what an earlier ``accelerate config`` left in the user's cache.
    """
    if any(_FSDP_DISABLED_PATTERN.search(line.text) for line in log.lines if "fsdp" in line.text.lower()):
        return False
    setup = log.setup
    if log.has("accelerate/default_config.y"):
        return False
    if any(_FSDP_PATTERN.search(text) for text in (setup.launch, setup.script, setup.deepspeed_config_text)):
        return True
    if any(log.has(words) for words in _FSDP_LOG_WORDS):
        return True
    if setup.launcher == "accelerate" and not re.search(r"--config[_-]file|\.ya?ml\b", setup.launch):
        return False
    if re.search(r"--deepspeed\b|--ds_config|\bdeepspeed ", setup.launch):
        return False
    return None
