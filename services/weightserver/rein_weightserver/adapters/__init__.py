"""Folder of versions, gRPC port."""
