"""The cards of one node, as NVML describes them: read, put into words, and published as a GPUNode."""
