from gonogo.hazards.rule import Findings, Hazard, Launch, Run, translated


class LaunchTorchDistributedLaunch(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The deprecated module; with a fix if the program gets no --local-rank anyway."""
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
            translated("python -m torch.distributed.launch is deprecated{passes}.").format(
                passes=""
                if launch.launcher_options.get("use_env").known
                else translated("; it also passes --local-rank to the program")
            ),
            spans=place.span(),
            fixes=self.fix(
                translated("start with torchrun"), place.edit("torchrun"), launch.launcher_options.removing("use_env")
            )
            if launch.launcher_options.get("use_env").known and launch.launcher_options.can_edit("use_env")
            else None,
        )
