"""The process beside HAProxy: it looks, asks the gate's pure core, and sets limits. No request passes it."""
