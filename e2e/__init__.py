"""Everything that stands in for a real cluster, MindIO and training: for tests, demo and benchmarks only."""
