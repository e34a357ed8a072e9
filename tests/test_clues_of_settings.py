"""Settings beside a failure: those that a message asks for in vain, and pairs that leave nothing between them."""

from __future__ import annotations

import json
from pathlib import Path

from test_explanations import clues, framed, report_on, sentence

from gonogo.diagnose.findings import read_failure

REMOTE = "ValueError: The repository m has custom code. Please pass the argument `trust_remote_code=True` to run."


def test_a_setting_that_the_message_asks_for_and_the_launch_has_does_not_reach_the_call(tmp_path: Path) -> None:
    log = framed("verl/utils/checkpoint.py", "m = c.from_config(x)", REMOTE, "save_checkpoint")
    said = clues(report_on(tmp_path, log, "python -m verl actor.model.trust_remote_code=True"))
    assert "it does not reach this call (save_checkpoint of verl makes it without it)" in said
    assert "does not reach" not in clues(report_on(tmp_path, log, "python -m verl actor.model.trust_remote_code=False"))


def test_two_equal_settings_leave_nothing_to_divide_by(tmp_path: Path) -> None:
    log = framed("deepspeed/lr.py", "r = last / real_total_steps", "ZeroDivisionError: float division by zero")
    (tmp_path / "run.log").write_text(log)
    config = tmp_path / "ds.json"
    for warmup, told in ((10, True), (2, False)):
        params = {"total_num_steps": 10, "warmup_num_steps": warmup}
        config.write_text(json.dumps({"scheduler": {"type": "WarmupCosineLR", "params": params}}))
        report = read_failure([str(tmp_path / "run.log")], deepspeed_config=config).report()
        assert ("so real_total_steps is 0" in clues(report)) == told


def test_a_null_value_is_no_missing_key(tmp_path: Path) -> None:
    code = '"seed": self.rank + self.config.get("seed", 0),'
    log = framed("verl/server.py", code, "TypeError: unsupported operand type(s) for +: 'int' and 'NoneType'")
    assert "'seed' is there with the value null" in sentence(report_on(tmp_path, log))


def test_a_number_that_a_table_lacks_was_left_out_of_it(tmp_path: Path) -> None:
    log = framed("deepspeed/compile.py", "b = self.partitions[p.ds_id]", "KeyError: 0")
    assert "a parameter that is frozen" in sentence(report_on(tmp_path, log))
    log = framed("deepspeed/compile.py", "b = self.partitions[p.kind]", "KeyError: None")
    assert "a parameter that is frozen" not in sentence(report_on(tmp_path, log))


def test_the_state_of_a_data_loader_is_no_checkpoint(tmp_path: Path) -> None:
    log = framed("accelerate/data_loader.py", 'self.dl_state_dict["_n"] -= 1', "KeyError: '_n'", "adjust_state_dict")
    assert "checkpoint that" not in sentence(report_on(tmp_path, log))


def test_an_extension_that_lacks_its_own_function_was_not_built_for_another_torch(tmp_path: Path) -> None:
    log = (
        "ImportError: /root/.cache/torch_extensions/py311_cu128/async_io/async_io.so: undefined symbol: "
        "_ZN21deepspeed_io_handle_t18_create_io_op_descEbRKN2at6TensorEiPKcbl\n"
    )
    report = report_on(tmp_path, log)
    assert "one of its own functions, not torch's" in clues(report)
    assert "compiled-extension-torch-mismatch" not in [finding.hazard for finding in report.findings]
