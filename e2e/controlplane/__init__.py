"""A real Kubernetes control plane, its fake fleet and one real node, for stories, demo, benchmarks."""
