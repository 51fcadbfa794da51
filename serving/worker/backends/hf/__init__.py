"""Models in Hugging Face's folders: config.json, weights, and a tokenizer or a processor of pictures."""
