"""Turns a plan into Kubernetes objects. Equal plans give equal bytes."""
