"""Adapters for systems that hold or move KV caches. Each imports its host only when it is used."""
