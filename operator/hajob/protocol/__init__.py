"""The gRPC protocol between operator, coordinator and agents: `sidecar.proto` and its generated code.

The generated files are checked in, so that neither an installation nor an image needs a compiler; `make lint` fails
when they are older than the .proto.
"""
