"""The only room that speaks to a model hub."""
