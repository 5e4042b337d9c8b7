"""The cards of one node, as NVML describes them. Nobody works here yet: GPUNode objects are read
from whoever writes them, and the node's labels stand in."""
