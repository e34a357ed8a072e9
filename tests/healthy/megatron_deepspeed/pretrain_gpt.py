from functools import partial

import torch
from megatron.core.enums import ModelType
from megatron.training import pretrain
from megatron.utils import average_losses_across_data_parallel_group, get_ltor_masks_and_position_ids

from megatron import get_args, get_tokenizer
from megatron.model import GPTModel


def model_provider(pre_process=True, post_process=True):
    return GPTModel(num_tokentypes=0, parallel_output=True, pre_process=pre_process, post_process=post_process)


def loss_of(mask, losses):
    mask = mask.view(-1).float()
    loss = torch.sum(losses.float().view(-1) * mask) / mask.sum()
    return loss, {"lm loss": average_losses_across_data_parallel_group([loss])[0]}


def forward_step(batches, model):
    tokens = next(batches)["text"].long().cuda()
    labels, tokens = tokens[:, 1:].contiguous(), tokens[:, :-1].contiguous()
    attention, mask, positions = get_ltor_masks_and_position_ids(tokens, get_tokenizer().eod, False, False, False)
    return model(tokens, positions, attention, labels=labels), partial(loss_of, mask)


def datasets_provider(numbers):
    from megatron.data.gpt_dataset import build_train_valid_test_datasets

    args = get_args()
    return build_train_valid_test_datasets(args.data_path, args.data_impl, args.split, numbers, args.seq_length, args.seed)


if __name__ == "__main__":
    pretrain(datasets_provider, model_provider, ModelType.encoder_or_decoder, forward_step)
