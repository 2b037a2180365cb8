"""The REST API: sweeps in, states and reports out. Every error is a problem document (RFC 9457)."""
