"""Compiles real .proto files, and says by protobuf's own library what their methods are.

Usage: compile.py FOLDER. For each case writes FOLDER/cases/NAME.pb, the set as protoc makes it, and
FOLDER/cases/NAME.json: the methods, and the command line for a second compiler.
"""

import json
import pathlib
import subprocess
import sys

from google.api import annotations_pb2
from google.protobuf import descriptor_pb2
import grpc_tools
from grpc_tools import protoc

out = pathlib.Path(sys.argv[1])
well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"


def module(name):
    """The folder of a Go module."""
    command = ["go", "list", "-m", "-f", "{{.Dir}}", name]
    return pathlib.Path(subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout.strip())


gax = out / "roots/google-gax-5.0.8"
pubsub = out / "roots/google-cloud-pubsub-5.3.1"
gateway = module("github.com/grpc-ecosystem/grpc-gateway/v2")
protobuf = module("google.golang.org/protobuf")
grpc = module("google.golang.org/grpc")
gogo = module("github.com/gogo/protobuf")
buf = module("github.com/bufbuild/buf")
conformance = module("connectrpc.com/conformance")
bazel = module("github.com/bazelbuild/remote-apis")


def below(root, folder):
    """All .proto files of a folder, as the root's importers name them."""
    return sorted(str(file.relative_to(root)) for file in (root / folder).rglob("*.proto"))


# Include paths and files of each case.
CASES = {
    # Deep packages, google.api.http everywhere, method signatures, streams.
    "googleapis_pubsub": ([pubsub, gax], below(pubsub, "google/pubsub")),
    "googleapis_longrunning": ([gax], ["google/longrunning/operations.proto"]),
    "googleapis_iam_location": ([gax], ["google/iam/v1/iam_policy.proto", "google/cloud/location/locations.proto"]),
    # Six services in a file, options of gogoproto and openapiv2; reads that are POST.
    "etcd": ([out / "roots/etcd", gogo, gateway, gax], ["etcd/api/etcdserverpb/rpc.proto"]),
    # No service, but extensions of everything.
    "protovalidate": ([out / "roots/protovalidate"], ["buf/validate/validate.proto"]),
    # Both idempotency levels, on more than a hundred methods.
    "buf_registry": ([buf / "proto"], below(buf / "proto", "buf/alpha/registry")),
    "connect_conformance": ([conformance / "proto"], below(conformance / "proto", "connectrpc")),
    # Reads by GET beside streams.
    "bazel": ([bazel, gax], ["build/bazel/remote/execution/v2/remote_execution.proto"]),
    # proto2: extensions, groups, message sets.
    "proto2": ([protobuf], [f"internal/testprotos/test/{name}.proto" for name in ["test", "ext"]]),
    "proto2_options": ([protobuf], ["cmd/protoc-gen-go/testdata/retention/retention.proto"]),
    "gogoproto": ([out / "roots/gogo"], ["github.com/gogo/protobuf/test/issue427/issue427.proto"]),
    "no_package": ([buf / "private/buf/bufformat/testdata/proto3/service/v1"], ["service.proto"]),
    "deep_imports": ([grpc], ["reflection/grpc_testing/test.proto"]),
    # Each form of google.api.http: several bindings, custom verbs, patches.
    "http_rules": (
        [gateway, gax],
        [f"examples/internal/proto/examplepb/{name}.proto"
         for name in ["a_bit_of_everything", "echo_service", "flow_combination", "wrappers", "generate_unbound_methods"]],
    ),
    "edition_2023": ([gateway, gax], ["examples/internal/proto/examplepb/opaque.proto"]),
}


def methods(files):
    """Each method of a set: its path and what is said of it."""
    for file in files.file:
        for service in file.service:
            name = f"{file.package}.{service.name}" if file.package else service.name
            for method in service.method:
                rule = method.options.Extensions[annotations_pb2.http]
                yield {
                    "path": f"/{name}/{method.name}",
                    "unary": not (method.client_streaming or method.server_streaming),
                    "level": method.options.idempotency_level,
                    "get": rule.WhichOneof("pattern") == "get",
                }


(out / "cases").mkdir()
for name, (roots, files) in CASES.items():
    compiled = out / "cases" / f"{name}.pb"
    command = ["protoc", "--include_imports", f"--descriptor_set_out={compiled}"]
    status = protoc.main([*command, *(f"-I{root}" for root in [*roots, well_known]), *files])
    if status != 0:
        sys.exit(f"{name}: protoc failed")
    read = descriptor_pb2.FileDescriptorSet.FromString(compiled.read_bytes())
    (out / "cases" / f"{name}.json").write_text(json.dumps({
        # Without protobuf's own files, which protox has.
        "includes": [str(root) for root in roots],
        "files": files,
        "editions": any(file.syntax == "editions" for file in read.file),
        "methods": list(methods(read)),
    }, indent=1))
