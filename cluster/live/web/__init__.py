"""HTTP servers of a testnet: connections, streams of events, metrics for Prometheus, the live dashboard."""
