"""Public facts about models and data sets, looked up by name: configurations, tokenizer layouts, columns."""
