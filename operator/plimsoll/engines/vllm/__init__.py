"""vLLM's habits: blocks of a paged pool, a profiled share of the card, flags by release."""
