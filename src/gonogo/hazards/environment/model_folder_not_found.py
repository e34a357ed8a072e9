from gonogo.hazards.rule import Certainty, Findings, LoggedHazard, Run, Script


class ModelFolderNotFound(LoggedHazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A model path with ``~`` that no code expands."""
        for call in script.calls("*.from_pretrained", "vllm.LLM", "*.snapshot_download"):
            given = call.argument(0)
            if given.string is not None and given.string.startswith("~/"):
                yield self.finding(
                    self.texts["cause"].format(path=given.string),
                    certainty=Certainty.LIKELY,
                    cure=self.cures[1],
                    spans=call.place.span(),
                )
