// Only for the .proto files in them: no Go is compiled.
module tonic-hedge/interop/protos

go 1.26

require (
	connectrpc.com/conformance v1.0.7
	github.com/bazelbuild/remote-apis v0.0.0-20260908115904-76ddd98e1f92
	github.com/bufbuild/buf v1.57.0
	github.com/gogo/protobuf v1.3.2
	github.com/grpc-ecosystem/grpc-gateway/v2 v2.33.0
	go.etcd.io/etcd/api/v3 v3.6.5
	google.golang.org/grpc v1.76.0
	google.golang.org/protobuf v1.36.10
)
