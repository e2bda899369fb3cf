"""Moving a version of the weights as one safetensors file: manifest, chunks, fast gRPC, publisher and subscriber.

Invariants: tensor bytes are never copied by protobuf; the bytes on the wire are ordinary `WeightFrame`
messages all the same. A file has arrived only when size and digest are the manifest's. Only `tensors` needs torch.
"""
