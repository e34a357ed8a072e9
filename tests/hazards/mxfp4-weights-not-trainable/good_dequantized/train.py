from transformers import AutoModelForCausalLM, Mxfp4Config
from trl import SFTTrainer

config = Mxfp4Config(dequantize=True)
model = AutoModelForCausalLM.from_pretrained("openai/gpt-oss-20b", quantization_config=config)
SFTTrainer(model=model).train()
