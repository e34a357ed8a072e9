import deepspeed
from transformers import AutoModelForCausalLM
from transformers.integrations import HfDeepSpeedConfig

HfDeepSpeedConfig("ds_config.json")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-32B")
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
