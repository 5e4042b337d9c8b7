"""The only room that speaks Prometheus, and the one that sets up logging."""
