from gonogo.evidence.field import whole_number
from gonogo.hazards.rule import Findings, Hazard, Launch, Run, Text


class LaunchIncludeWithOtherFilters(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """--include, --exclude and the counts, two at a time."""
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
            Text(
                "deepspeed is given {written}: it raises “{message}” and starts nothing.",
                "deepspeed 同时得到 {written}：会抛出“{message}”，不启动任何进程。",
            ).format(
                written=Text(" and ".join(written), " 与 ".join(written)),
                message="include_str and exclude_str are mutually exclusive."
                if len(named) == 2 and not counted
                else "Cannot specify num_nodes/gpus with include/exclude",
            ),
            cure=(
                Text(
                    "Take {counted} out: {filter} says which GPUs, and so how many",
                    "去掉 {counted}：{filter} 已说明用哪些、也就是用几张 GPU",
                ).format(counted=", ".join(f"--{name}" for name in counted), filter=written[0])
                if len(named) == 1
                else Text("Keep one of them", "只保留其中之一")
            ),
            spans=tuple(place.span() if (place := options.place_of(name)) else None for name in reversed(both)),
            fixes=self.fix(
                Text("take --{name} out", "去掉 --{name}").format(name=counted[0]), options.removing(counted[0])
            )
            if len(named) == 1 and len(counted) == 1 and options.can_edit(counted[0])
            else None,
        )
