"""Pure rules of Shardproof: no I/O, no clock, no Ray."""
