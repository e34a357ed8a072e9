from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_RENAMED = {"trainer.val_generations_to_log_to_wandb": ("trainer.log_val_generations", "0.3")}
"""verl's keys that have another name, with the release that changed it (verl/trainer/config/ppo_trainer.yaml)."""


class HydraKeyNotInConfigVersion(LoggedHazard):
    """A command-line override, or code, uses a config key that the installed release does not know.
    ## What happens
    "Could not override 'trainer.val_generations_to_log_to_wandb'. To append to your config use +… Key '…' is not in
    struct" (Hydra), "ConfigAttributeError: Key 'agent' is not in struct", "ConfigKeyError", "Missing key …".
    ## Why
    Hydra composes a config in struct mode: only keys that its YAML has can be overridden. Frameworks rename and move
    keys between releases (verl: `trainer.val_generations_to_log_to_wandb` became `trainer.log_val_generations`);
    scripts of another release, or a checkout whose code is newer than the YAML that is read, name what is not there.
    ## Example
    ```sh
    python -m verl.trainer.main_ppo trainer.val_generations_to_log_to_wandb=10    # wrong since verl 0.3
    python -m verl.trainer.main_ppo trainer.log_val_generations=10                # right
    ```
    ## Cure
    Use the script of the installed release, or the key's new name; `++key=value` adds one that the code reads although
    the YAML does not list it.
    ## When it is safe
    Where the keys stand in the YAML of the installed release.
    ## Sources
    - https://github.com/SwanHubX/SwanLab-Docs/pull/170: a key that verl has renamed
    - https://github.com/verl-project/verl/issues/6801: rollout.agent.num_workers is not found
    - https://github.com/hydra-ecosystem/hydra/issues/1912: how Hydra says it
    - https://hydra.cc/docs/advanced/override_grammar/basic/: override, append (+), and add or override (++)
    """

    name = "hydra-key-not-in-config-version"
    title = Text("An override names a key that this release's config does not have", "命令行覆盖了该版本配置中没有的键")

    ends_at = (("hydra/_internal/config_loader_impl.py", "_apply_overrides_to_config"),)
    traces = (
        "object_type=dict",
        "set the environment variable HYDRA_FULL_ERROR=1",
        "Set the environment variable HYDRA_FULL_ERROR=1",
    )
    log_words = (
        "Could not override",
        "is not in struct",
        "ConfigKeyError",
        "ConfigAttributeError",
        "ConfigCompositionException",
    )
    anywhere = True
    signs = (
        Sign(
            Pattern(r"Could not override '(?P<key>[^']{1,200})'"),
            cause=Text(
                "The command overrides {key}, which the config of this release does not have.",
                "命令覆盖了 {key}，而该版本的配置没有它。",
            ),
        ),
        Sign(
            Pattern(r"Key '(?P<key>[^']{1,200})' (?:is )?not in (?:struct|'\w+')"),
            cause=Text(
                "{key} is asked of a config that does not have it: code and config, or command and config, are "
                "of different releases.",
                "向没有 {key} 的配置索取它：代码与配置，或命令与配置，来自不同版本。",
            ),
        ),
        Sign(
            Pattern(
                r"(?:ConfigAttributeError|ConfigKeyError|ConfigCompositionException): .*(?:[Mm]issing key"
                r"|not in struct|Could not)"
            )
        ),
        Sign(
            types=("ConfigAttributeError", "ConfigKeyError", "ConfigCompositionException"), certainty=Certainty.LIKELY
        ),
        Sign(
            types=("",),
            frames=(("hydra/_internal/config_loader_impl.py",), ("_apply_overrides_to_config",)),
            certainty=Certainty.LIKELY,
        ),
        Sign(Pattern(r"To append to your config use \+")),
    )
    cause = Text(
        "A key is overridden or read that the config of this release does not have.",
        "覆盖或读取了该版本配置中没有的键。",
    )
    cures = (
        Text(
            "Take the script and the YAML of the installed release, or the key's name in it; ++key=value "
            "where the code reads it and the YAML does not list it",
            "使用所装版本的脚本与 YAML，或其中的键名；若代码会读取而 YAML 未列出，用 ++key=value",
        ),
    )
    confirm = (Text("The framework's YAML in the installed package has no such key", "所装软件包内的 YAML 没有该键"),)

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Overrides of keys that verl has renamed, where the installed release is newer."""
        program = launch.program.string or ""
        if not program.endswith(("verl.trainer.main_ppo", "verl/trainer/main_ppo.py")):
            return
        for word in launch.options.positional:
            key = (word.value or "").partition("=")[0]
            if key not in _RENAMED:
                continue
            now, since = _RENAMED[key]
            newer = run.environment.within("verl", f">={since}")
            if newer is False:
                continue
            yield self.finding(
                Text(
                    "verl {since} renamed {key} to {now}: Hydra refuses the override.",
                    "verl {since} 把 {key} 改名为 {now}：Hydra 会拒绝该覆盖。",
                ).format(since=since, key=key, now=now),
                certainty=Certainty.CERTAIN if newer else Certainty.POSSIBLE,
                cure=Text("Write {now}", "改写为 {now}").format(now=now),
                spans=(word.place.span(), run.environment.field("verl").span()),
                confirm=()
                if newer
                else Text("pip show verl says {since} or newer", "pip show verl 显示 {since} 或更新").format(
                    since=since
                ),
            )
