from gonogo.hazards.rule import Findings, Hazard, Launch, Run, Text, translated, whole_number


class LaunchIncludeWithOtherFilters(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Any two of --include, --exclude and the counts."""
        if launch.launcher != "deepspeed":
            return
        options = launch.launcher_options
        named = [name for name in ("include", "exclude") if name in options and options.get(name).get("?") != ""]
        counted = [
            name
            for name in ("num_gpus", "num_accelerators", "num_nodes")
            if name in options and (whole_number(options.get(name)) or 0) >= 0
        ]
        if not named or len(named) + len(counted) < 2:
            return
        both = [*named, *counted]
        written = [f"--{name} {options.get(name).get('…')}" for name in both]
        yield self.finding(
            translated("deepspeed is given {written}: it raises “{message}” and starts nothing.").format(
                written=Text(" and ".join(written), " 与 ".join(written)),
                message="include_str and exclude_str are mutually exclusive."
                if len(named) == 2 and not counted
                else "Cannot specify num_nodes/gpus with include/exclude",
            ),
            cure=(
                translated("Remove {counted}: {filter} already determines which GPUs, and thus how many").format(
                    counted=", ".join(f"--{name}" for name in counted), filter=written[0]
                )
                if len(named) == 1
                else translated("Keep one of them")
            ),
            spans=tuple(place.span() if (place := options.place_of(name)) else None for name in reversed(both)),
            fixes=self.fix(translated("remove --{name}").format(name=counted[0]), options.removing(counted[0]))
            if len(named) == 1 and len(counted) == 1 and options.can_edit(counted[0])
            else None,
        )
