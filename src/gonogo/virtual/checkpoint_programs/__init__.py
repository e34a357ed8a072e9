"""What a checkpoint is given to where no command says it: PEFT's merge of an adapter, transformers' loading."""
