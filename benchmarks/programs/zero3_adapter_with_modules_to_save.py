"""LoRA with a head in modules_to_save on a base that transformers makes under zero.Init, trained with ZeRO-3 and saved.

truth: GO
why: PEFT gathers what it copies; the engine writes its checkpoint on all ranks, and gathers the adapter on all.
"""

import deepspeed
import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from start import start
from transformers import LlamaConfig, LlamaForSequenceClassification
from transformers.integrations import HfDeepSpeedConfig

device = start()
size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
config = {
    "train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {"stage": 3},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
}
told = HfDeepSpeedConfig(config)
base = LlamaForSequenceClassification._from_config(
    LlamaConfig(vocab_size=64, pad_token_id=0, num_labels=2, **size), dtype=torch.float32
)
lora = LoraConfig(task_type="SEQ_CLS", target_modules=["q_proj"], modules_to_save=["score"], r=4)
model = get_peft_model(base, lora)
trained = [value for value in model.parameters() if value.requires_grad]
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=trained, config=config)
for _ in range(8):
    tokens = torch.randint(1, 64, (2, 12), device=device)
    engine.backward(engine(input_ids=tokens, labels=torch.tensor([0, 1], device=device)).loss)
    engine.step()
engine.save_checkpoint("kept")
with deepspeed.zero.GatheredParameters(trained):
    if dist.get_rank() == 0:
        engine.module.save_pretrained("adapter")
dist.barrier()
dist.destroy_process_group()
