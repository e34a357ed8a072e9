import deepspeed
import torch
from transformers import AutoModelForCausalLM

teacher = AutoModelForCausalLM.from_pretrained("models/teacher")
student = AutoModelForCausalLM.from_pretrained("models/student")
engine, _, _, _ = deepspeed.initialize(
    model=student, optimizer=torch.optim.AdamW(student.parameters(), lr=1e-5), config="ds_config.json"
)
teacher_engine, *_ = deepspeed.initialize(model=teacher, config="ds_config.json")
