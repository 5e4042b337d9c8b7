"""The front door: what users write, what they are told, and the CRDs made from both."""
