import deepspeed
from data import pairs
from encoder import BiEncoder

encoder = BiEncoder("intfloat/e5-mistral-7b-instruct")
encoder.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
engine, *_ = deepspeed.initialize(model=encoder, model_parameters=encoder.parameters(), config="ds_config.json")
for query, passage in pairs():
    similarity = engine(**query) @ engine(**passage).T
    engine.backward(-similarity.diag().log_softmax(0).mean())
    engine.step()
