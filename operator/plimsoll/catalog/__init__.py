"""What we know before looking: GPU types, engine releases, model shapes. Data with a source per row."""
