from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer

model = AutoModelForCausalLM.from_pretrained("m", quantization_config=BitsAndBytesConfig(load_in_8bit=True))
Trainer(model=model).train()
