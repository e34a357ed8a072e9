import deepspeed
import torch
from audio_llm import AudioLLM, loader_of

model = AudioLLM.from_pretrained("checkpoints/audio-llm-7b")
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for batch in loader_of(engine):
    loss = engine(**batch).loss
    dummy = model.projector(torch.zeros(1, 8, 1280, device=loss.device))
    loss = loss + dummy.sum() * 0.0
    engine.backward(loss)
    engine.step()
