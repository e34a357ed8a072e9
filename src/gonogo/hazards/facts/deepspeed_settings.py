"""How values of a DeepSpeed config are pointed at and worded, and what the run's DeepSpeed does with them."""

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.run import Run
from gonogo.evidence.source_file import Place
from gonogo.finding import Span, Text, translated
from gonogo.hazards.facts.training_framework import uses_accelerate, uses_deepspeed_directly

ZERO = "zero_optimization"


def config_span(config: DeepSpeedConfig, *keys: str, label: Text | None = None) -> Span | None:
    """A key with its value; None where it stands in no file."""
    key, value = config.key_place(*keys), config.raw(*keys).place
    if key is not None and value is not None and key.source is value.source:
        return Place(key.source, key.start, value.end).span(label)
    place = value or key
    return place.span(label) if place is not None else None


def config_key_span(config: DeepSpeedConfig, *keys: str, label: Text | None = None) -> Span | None:
    """The key alone, as for an object of many lines; None where it stands in no file."""
    place = config.key_place(*keys)
    return place.span(label) if place is not None else config_span(config, *keys, label=label)


def dotted(keys: tuple[str, ...]) -> str:
    """Nested keys as people write them: ``zero_optimization.stage``."""
    return ".".join(keys)


def is_on(config: DeepSpeedConfig, *section: str) -> bool:
    """Whether a section's ``enabled`` is surely true."""
    return config.get(*section, "enabled").truth is True


def deepspeed_version_matches(run: Run, specifier: str) -> bool | None:
    """Whether the run's DeepSpeed is in the specifier; None where its version is not told."""
    return run.environment.within("deepspeed", specifier)


def describe_deepspeed_version(run: Run) -> Text:
    """``deepspeed 0.17.6``, or only its name where the version is not told."""
    version = run.environment.version("deepspeed")
    return translated("deepspeed") if version is None else Text(f"deepspeed {version}", f"deepspeed {version}")


def is_read_as_json(run: Run) -> bool | None:
    """Who reads the file: Python's json (transformers, accelerate), or DeepSpeed's Hjson; None where not known."""
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
    """The optimizer that the config has DeepSpeed build, as written; None where it names none."""
    return config.raw("optimizer", "type").string


def has_fused_adam(config: DeepSpeedConfig) -> bool:
    """Whether the config has DeepSpeed build one of the Adams with its own kernels."""
    torch_adam = config.raw("optimizer", "params", "torch_adam")
    return (optimizer_type(config) or "").lower() in ("adam", "adamw") and torch_adam.truth is not True


def gib(size: float) -> str:
    """Bytes as GiB."""
    return f"{size / 1024**3:,.1f} GiB"
