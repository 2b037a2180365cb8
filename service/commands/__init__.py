"""Commands of ``shardproof``, by what they are about."""
