"""Locates and formats values of a DeepSpeed config, and finds how the run's DeepSpeed treats them."""

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.run import Run
from gonogo.evidence.source_file import Place
from gonogo.finding import Span, Text, translated
from gonogo.hazards.facts.training_framework import uses_accelerate, uses_deepspeed_directly

ZERO = "zero_optimization"


def config_span(config: DeepSpeedConfig, *keys: str, label: Text | None = None) -> Span | None:
    """The span of a key with its value; None if no file contains it."""
    key, value = config.key_place(*keys), config.raw(*keys).place
    if key is not None and value is not None and key.source is value.source:
        return Place(key.source, key.start, value.end).span(label)
    place = value or key
    return place.span(label) if place is not None else None


def config_key_span(config: DeepSpeedConfig, *keys: str, label: Text | None = None) -> Span | None:
    """The span of the key alone, for objects of many lines; None if no file contains it."""
    place = config.key_place(*keys)
    return place.span(label) if place is not None else config_span(config, *keys, label=label)


def dotted_key(keys: tuple[str, ...]) -> str:
    """Nested keys joined by dots: ``zero_optimization.stage``."""
    return ".".join(keys)


def is_section_enabled(config: DeepSpeedConfig, *section: str) -> bool:
    """Whether a section's ``enabled`` is certainly true."""
    return config.get(*section, "enabled").truth is True


def deepspeed_version_matches(run: Run, specifier: str) -> bool | None:
    """Whether the run's DeepSpeed version matches the specifier; None if the version is unknown."""
    return run.environment.within("deepspeed", specifier)


def describe_deepspeed_version(run: Run) -> Text:
    """``deepspeed 0.17.6``, or only the name if the version is unknown."""
    version = run.environment.version("deepspeed")
    return translated("deepspeed") if version is None else Text(f"deepspeed {version}", f"deepspeed {version}")


def is_read_as_json(run: Run) -> bool | None:
    """True if Python's json reads the file (transformers, accelerate), False for DeepSpeed's Hjson, None: unknown."""
    launch = run.launch
    if launch is not None:
        if run.framework or launch.framework or launch.launcher == "accelerate":
            return True
        # `--deepspeed_config` is DeepSpeed's own option, `--deepspeed FILE` transformers'.
        if launch.options.get("deepspeed_config").known:
            return False
        if (launch.options.get("deepspeed").string or "").endswith(".json"):
            return True
    if uses_accelerate(run):
        return True
    return False if uses_deepspeed_directly(run) else None


def optimizer_type(config: DeepSpeedConfig) -> str | None:
    """The optimizer type in the config, as written; None if there is none."""
    return config.raw("optimizer", "type").string


def has_fused_adam(config: DeepSpeedConfig) -> bool:
    """Whether DeepSpeed builds an Adam with its own kernels for the config."""
    torch_adam = config.raw("optimizer", "params", "torch_adam")
    return (optimizer_type(config) or "").lower() in ("adam", "adamw") and torch_adam.truth is not True


def format_gib(size: float) -> str:
    """A number of bytes in GiB."""
    return f"{size / 1024**3:,.1f} GiB"
