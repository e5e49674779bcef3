"""A host application."""
