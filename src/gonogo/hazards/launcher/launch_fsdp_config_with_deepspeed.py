from gonogo.hazards.rule import Findings, Hazard, Launch, Run


class LaunchFsdpConfigWithDeepspeed(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """distributed_type: FSDP, or --use_fsdp, together with the program's --deepspeed."""
        if launch.launcher != "accelerate" or "deepspeed" not in launch.options:
            return
        options = launch.launcher_options
        field = launch.options.get("deepspeed")
        if field.absent or field.truth is False:
            return
        own = options.get("use_fsdp")
        if own.absent and run.accelerate is not None and "use_deepspeed" not in options and "multi_gpu" not in options:
            kind = run.accelerate.get("distributed_type")
            own = kind if kind.known and str(kind.value).upper() == "FSDP" else own
        if not own.known:
            return
        place = launch.options.place_of("deepspeed")
        yield self.finding(
            self.texts["cause"].format(
                where="--use_fsdp" if "use_fsdp" in options else "distributed_type: FSDP",
                config=field.value if isinstance(field.value, str) else "",
            ),
            spans=(place.span() if place else launch.place.span(), own.span()),
        )
