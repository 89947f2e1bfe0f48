"""Fine-tuning of causal Hugging Face checkpoints, in full or with LoRA: base, rows, one run, its record, and `finetune`."""
