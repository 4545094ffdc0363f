"""What SDK and collector must agree on: the OTLP wire, the MCP-Trace schema, sampling arithmetic.

Pure: no I/O, no clock, no threads, no environment.
"""
