"""Quantization of trained models: few values per weight tensor, as in section 9.1.3 of the Secret Sharer, or int8."""
