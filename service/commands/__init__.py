"""Commands of ``shardproof``, each group in a module of its own."""
