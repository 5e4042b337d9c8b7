"""One engine's habits each: how it books memory, which flags say what, from which release."""
