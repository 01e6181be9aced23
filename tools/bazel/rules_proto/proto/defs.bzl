"""The protobuf rules that are built into Bazel, under rules_proto's names."""

proto_lang_toolchain = native.proto_lang_toolchain
proto_library = native.proto_library
ProtoInfo = ProtoInfo
