import deepspeed
from deepspeed.pipe import PipelineModule

from model import layers, loss_fn

deepspeed.init_distributed()
net = PipelineModule(layers=layers(), loss_fn=loss_fn, num_stages=2)
engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds_config.json")
for _ in range(100):
    engine.train_batch()
