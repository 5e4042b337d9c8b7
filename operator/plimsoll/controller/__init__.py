"""The only room with kopf: it listens, keeps the queue, and runs look, decide, make it so."""
