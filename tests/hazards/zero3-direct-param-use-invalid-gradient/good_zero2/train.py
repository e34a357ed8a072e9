import deepspeed
import torch
from audio_llm import AudioLLM, loader_of

model = AudioLLM.from_pretrained("checkpoints/audio-llm-7b")
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")
for batch in loader_of(engine):
    loss = engine(**batch).loss
    # every rank must touch the projector
    dummy = 0.0
    for name, param in model.projector.named_parameters():
        dummy = dummy + 0.0 * param.sum()
    loss = loss + dummy
    engine.backward(loss)
    engine.step()
