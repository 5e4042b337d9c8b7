"""Plimsoll: a load line for LLM inference workers on Kubernetes."""

__version__ = "0.2.0"
