"""Servers of tools that speak the Model Context Protocol: entries, connections, their tools."""
