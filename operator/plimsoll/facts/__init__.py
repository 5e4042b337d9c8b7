"""Nouns of the world as seen: a card, a node, a model, a worker. No opinions."""
