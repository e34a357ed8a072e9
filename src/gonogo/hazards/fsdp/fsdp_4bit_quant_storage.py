from gonogo.hazards.rule import Findings, LoggedHazard, Run, Script, translated

_FLOATS = ("torch.bfloat16", "torch.float16", "torch.float32")


class Fsdp4bitQuantStorage(LoggedHazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A 4-bit model under FSDP whose weights are stored as uint8, which FSDP can't flatten with the others."""
        if b"load_in_4bit" not in script.source.data or run.accelerate is None:
            return
        kind = run.accelerate.distributed_type
        if kind.value != "FSDP" or str(run.accelerate.get("fsdp_config", "fsdp_version").get(1)) == "2":
            return
        for call in script.calls("*.BitsAndBytesConfig"):
            if call.keyword("load_in_4bit").truth is not True or not call.keyword("bnb_4bit_quant_storage").absent:
                continue
            compute = call.keyword_node("bnb_4bit_compute_dtype")
            name = script.qualified(compute) if compute is not None else None
            dtype = script.place(compute).text if compute is not None and name in _FLOATS else None
            edit = script.setting_keyword(call, "bnb_4bit_quant_storage", dtype) if dtype else None
            yield self.finding(
                cure=self.texts["cure"].format(dtype=dtype or "torch.bfloat16"),
                spans=(call.place.span(), kind.span(translated("FSDP is requested here"))),
                fixes=self.fix(translated("Store the weights as the compute dtype"), edit)
                if edit is not None
                else None,
            )
