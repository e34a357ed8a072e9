import deepspeed

deepspeed.checkpointing.configure(None, deepspeed_config="ds_config.json")
engine, _, _, _ = deepspeed.initialize(model=build_model(), config="ds_config.json")
