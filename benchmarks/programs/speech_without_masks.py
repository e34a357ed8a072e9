"""CTC on a small wav2vec 2.0 under DDP; masking of the input was turned off for a short trial.

truth: NO-GO
says: Expected to have finished reduction|not used in producing loss
why: the embedding that stands for masked frames is a parameter still, and no longer in the graph.
"""

import torch
from start import start
from torch.nn.parallel import DistributedDataParallel
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

device = start()
config = Wav2Vec2Config(
    vocab_size=32,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    conv_dim=(8, 8),
    conv_stride=(5, 4),
    conv_kernel=(10, 8),
    num_feat_extract_layers=2,
    num_conv_pos_embeddings=16,
    num_conv_pos_embedding_groups=2,
    apply_spec_augment=False,
    layerdrop=0.0,
    ctc_loss_reduction="mean",
    ctc_zero_infinity=True,
)
model = DistributedDataParallel(Wav2Vec2ForCTC(config).to(device))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    sound = torch.randn(2, 2000, device=device)
    labels = torch.randint(1, 32, (2, 12), device=device)
    model(sound, labels=labels).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
