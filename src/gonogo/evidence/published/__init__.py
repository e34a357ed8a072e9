"""What is publicly known of models and data sets by their names: configurations, tokenizers' layouts, columns."""
