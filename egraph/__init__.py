"""The engine: terms, rules, saturation and extraction. Knows nothing of torch."""
