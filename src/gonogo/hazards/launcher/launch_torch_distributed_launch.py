from gonogo.hazards.rule import Findings, Hazard, Launch, Run, Severity, Text


class LaunchTorchDistributedLaunch(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The old module; its fix where the program gets no --local-rank from it anyway."""
        if launch.launcher != "torch.distributed.launch":
            return
        words = [word for word in launch.words if word.place.source is launch.source]
        at = next((index for index, word in enumerate(words) if word.value == "torch.distributed.launch"), None)
        if at is None or at < 2:
            return
        first, last = words[at - 2], words[at]
        if words[at - 1].value != "-m" or "python" not in (first.value or ""):
            return
        place = launch.source.place(first.place.start, last.place.end)
        yield self.finding(
            Text(
                "python -m torch.distributed.launch is deprecated{passes}.",
                "python -m torch.distributed.launch 已被弃用{passes}。",
            ).format(
                passes=""
                if launch.launcher_options.get("use_env").known
                else Text("; it also passes --local-rank to the program", "；它还会向程序传入 --local-rank")
            ),
            severity=Severity.NOTE,
            cure=Text(
                "Use torchrun, and let the program read the environment's LOCAL_RANK",
                "改用 torchrun，程序从环境变量 LOCAL_RANK 读取",
            ),
            spans=place.span(),
            fixes=self.fix(
                Text("start with torchrun", "改用 torchrun 启动"),
                place.edit("torchrun"),
                launch.launcher_options.removing("use_env"),
            )
            if launch.launcher_options.get("use_env").known and launch.launcher_options.can_edit("use_env")
            else None,
        )
