"""What every part of Rein agrees on: messages (`rein.v1`), topics, ids and grants.

`rein.v1` is generated from `protos/` by `make protos`; everything in this package is written by hand and imports
nothing but the standard library and protobuf.
"""
